#pragma once

#include <span>

#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Sums of f32 whose bytes travel in 16 bits: a kernel rounds the input, with what roundings before have left
/// of it, a group adds up, and a kernel widens the sums. Queues an all_reduce or reduce_scatter of `members`
/// ranks, of which this one is `member`. `memory`, which groups reach, holds a part of a call: a larger one
/// is cut.
void run_narrow(const DeviceCall& call, DataType wire, int members, int member, std::span<std::byte> memory,
                const PassOn& pass_on);

}  // namespace ddl::device
