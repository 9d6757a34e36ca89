#pragma once

#include <cstddef>
#include <vector>

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
  std::size_t rest =
      0;  ///< Elements after the last chunk, fewer than a host has ranks, which are reduced by all at once.
};

/// Cuts `count` elements for hosts of `inner` ranks into `chunks` of alike size, or fewer if there is not
/// enough.
ScatterGather scatter_gather(std::size_t count, std::size_t inner, std::size_t chunks);

}  // namespace ddl::device
