#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddl {

/// Elements [first, first + count) of a gradient.
struct GradientPiece {
  std::size_t gradient = 0;  ///< In order of registration.
  std::size_t first = 0;
  std::size_t count = 0;

  friend bool operator==(const GradientPiece&, const GradientPiece&) = default;
};

/// What is reduced as one: pieces in order of registration.
struct BucketLayout {
  std::vector<GradientPiece> pieces;
  std::size_t padding = 0;  ///< Elements after the last piece, which belong to no gradient.
  bool rows = false;        ///< The whole of a gradient whose rows may travel alone.

  [[nodiscard]] std::size_t count() const noexcept;

  friend bool operator==(const BucketLayout&, const BucketLayout&) = default;
};

/// What a layout is made from: the same on all ranks.
struct LayoutRequest {
  std::span<const std::size_t> counts;  ///< Elements of each gradient.
  std::span<const std::uint8_t> rows;   ///< Whether a gradient is a bucket of its own, by rows; empty: none.
  std::span<const std::size_t> order;   ///< All gradients, in the order in which they become ready.
  std::size_t bucket_count = 1;         ///< Elements of a bucket, at most; 1 or more.
  std::size_t multiple = 1;             ///< What each bucket's count is a multiple of, but for those of rows.
};

/// Cuts gradients into buckets, in the order in which they can be reduced.
///
/// A bucket ends with a gradient where it is at least half full by then; a gradient that is larger than a
/// bucket is cut so that the rest lies beside the gradient that comes next, as registered: buckets of an
/// orderly backward pass are runs of memory. What a multiple leaves over goes to the next bucket; the last is
/// padded.
std::vector<BucketLayout> bucket_layout(const LayoutRequest& request);

}  // namespace ddl
