#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Elements [first, first + count).
struct ElementRange {
  std::size_t first = 0;
  std::size_t count = 0;

  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};
/// Cuts `count` elements into ranges of `each` elements, rounded up to a multiple of `unit`; the last one may
/// be shorter.
std::vector<ElementRange> cut(std::size_t count, std::size_t each, std::size_t unit);

/// Splits calls by dimension: dimension 0 holds the ranks of a host, dimension 1 a column, the ranks with the
/// same index on their hosts. Each dimension has its own stream; events join them, so that chunks are
/// pipelined. An all_reduce becomes a reduce_scatter, an all_reduce and an all_gather; the other collectives
/// are the same in both dimensions. reduce_scatter and all_gather copy all pieces once, to sort by column.
class DimensionCalls {
 public:
  /// Passes a part of a call to the group of a dimension.
  using PassOn = std::function<void(std::size_t dimension, const DeviceCall& part)>;

  /// Requires hosts with the same number of ranks. Uses the selected device. `scratch`, in device memory,
  /// holds intermediate results of chunks; if it is small, calls take more chunks than the plan says.
  /// Collective; errors are agreed.
  DimensionCalls(const Context& context, std::span<std::byte> scratch);

  /// Queues the call in `chunks` chunks, or more if the scratch memory is too small for these.
  void run(const DeviceCall& call, int chunks, const PassOn& pass_on);

 private:
  struct Call;
  static constexpr std::size_t slots = 2;  // parts of the scratch memory that chunks use in turn

  void finish(const DeviceCall& call, std::byte* values, std::size_t count) const;

  Context context_;
  const std::span<std::byte> scratch_;
  std::vector<std::vector<int>> columns_;
  Stream inside_, between_;
  Event joint_;
  std::array<Event, slots> slot_free_;
};

}  // namespace ddl::device
