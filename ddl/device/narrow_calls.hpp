#pragma once

#include <functional>
#include <span>

#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Sums of f32 whose bytes travel in 16 bits: a kernel rounds the input, with what roundings before have left
/// of it, a group adds up, and a kernel widens the sums.
class NarrowCalls {
 public:
  using PassOn = std::function<void(const DeviceCall&)>;

  /// `memory`, which groups reach, holds a part of a call: a larger one is cut.
  explicit NarrowCalls(std::span<std::byte> memory) : memory_(memory) {}

  /// Queues an all_reduce or reduce_scatter of `members` ranks, of which this one is `member`.
  void run(const DeviceCall& call, DataType wire, int members, int member, const PassOn& pass_on) const;

 private:
  std::span<std::byte> memory_;
};

}  // namespace ddl::device
