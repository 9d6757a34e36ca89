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

/// A chunk of an all-reduce by dimension: elements [first, first + inner * part), of which member i of a host
/// sums the i-th `part` over its host, and then over all.
struct ScatterGatherChunk {
  std::size_t first = 0;
  std::size_t part = 0;

  friend bool operator==(const ScatterGatherChunk&, const ScatterGatherChunk&) = default;
};
struct ScatterGather {
  std::vector<ScatterGatherChunk> chunks;
  std::size_t rest = 0;  ///< Elements after the last chunk, fewer than `inner`, which all reduce at once.
};
/// Cuts `count` elements for hosts of `inner` ranks into `chunks` of alike size, or fewer if there is not
/// enough.
ScatterGather scatter_gather(std::size_t count, std::size_t inner, std::size_t chunks);

/// Cuts calls by dimension: 0 is the ranks of a host, 1 those of one index on their hosts, a column. Each
/// dimension has a stream of its own, joined by events, so that chunks follow one another. An all_reduce is a
/// reduce_scatter, an all_reduce and an all_gather; the other collectives are the same in both dimensions.
/// reduce_scatter and all_gather copy all pieces once, into the order of the columns.
class DimensionCalls {
 public:
  /// A part of a call, for the group of a dimension.
  using PassOn = std::function<void(std::size_t dimension, const DeviceCall& part)>;

  /// Hosts have as many ranks each. On the device that is selected. `scratch`, in its memory, holds chunks
  /// between the dimensions: where it is too small, there are more of them than the plan says. Collective;
  /// errors are agreed.
  DimensionCalls(const Context& context, std::span<std::byte> scratch);

  /// Queues the call in `chunks` parts.
  void run(const DeviceCall& call, int chunks, const PassOn& pass_on);

 private:
  struct Call;
  static constexpr std::size_t slots = 2;  // of the scratch memory, for chunks that follow one another

  void finish(const DeviceCall& call, std::byte* values, std::size_t count) const;

  Context context_;
  const std::span<std::byte> scratch_;
  std::vector<std::vector<int>> columns_;
  Stream inside_, between_;
  Event joint_;
  std::array<Event, slots> slot_free_;
};

}  // namespace ddl::device
