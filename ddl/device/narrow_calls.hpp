#pragma once

#include <span>

#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Queues an all_reduce or reduce_scatter of f32 values that travel in 16 bits: a kernel adds the residual to
/// the input and rounds the result to `wire`, a group reduces it, and a kernel widens the sums to f32. This
/// rank is `member` of `members`. A call that does not fit in `memory`, which the groups can reach, is cut.
void run_narrow(const DeviceCall& call, DataType wire, int members, int member, std::span<std::byte> memory,
                const PassOn& pass_on);

}  // namespace ddl::device
