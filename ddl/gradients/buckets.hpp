#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/communicator.hpp"
#include "ddl/context.hpp"
#include "ddl/gradient_reducer.hpp"

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

inline std::span<float> floats_of(const Gradient& gradient) noexcept { return gradient.values; }
inline std::span<float> floats_of(const Parameter& parameter) { return parameter.values.as<float>(); }

/// The memory of a bucket's pieces, if they lie one after the other in it and there is no padding, else
/// nothing. `owners`: gradients or parameters, in order of registration.
template <typename Owners>
std::span<float> one_run(const BucketLayout& layout, const Owners& owners) {
  if (layout.padding > 0 || layout.pieces.empty()) return {};
  const GradientPiece& front = layout.pieces.front();
  float* const first = floats_of(owners[front.gradient]).data() + front.first;
  std::size_t count = 0;
  for (const GradientPiece& piece : layout.pieces) {
    if (floats_of(owners[piece.gradient]).data() + piece.first != first + count) return {};
    count += piece.count;
  }
  return {first, count};
}

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

/// What a reducer's sums depend on beyond its options and the communicator's plans.
struct LearnedBuckets {
  std::string format = "ddl gradient reducer";
  std::uint64_t gradients = 0;  ///< A hash of their names and sizes, and of the options.
  std::size_t bucket_bytes = 0;
  std::vector<std::size_t> order;  ///< Learned; empty: not yet.
  int ranks = 0;
  std::uint64_t plans = 0;  ///< A hash of the plans by which buckets are reduced.

  [[nodiscard]] std::string json() const;
  /// Throws `corrupt_data` for what is no state, and unless the order, if any, is one of `count` gradients.
  static LearnedBuckets parse(std::string_view json, std::size_t count);
};

/// The last registered first.
std::vector<std::size_t> reverse_order(std::size_t gradients);
/// All gradients by the mean over all ranks of each one's place in `own`, the order of those that had values
/// on this rank; others count as last, and of equal ones the last registered comes first. Collective: the
/// same on all ranks.
std::vector<std::size_t> learn_order(Communicator& communicator, std::span<const std::size_t> own,
                                     std::size_t gradients);

/// Of all entries, in their order.
std::uint64_t hash_of_entries(const std::vector<std::string>& entries) noexcept;

/// Bytes of a bucket for gradients of `total` bytes in the host's memory: the fewest whose all-reduce is
/// predicted to cost at most 5% more a byte than the best does, between 16 KiB and a twentieth of the total,
/// so that the last bucket, which backward cannot hide, is small. Where all of them together take less than
/// 0.1 ms: those for which the last bucket and 4 us for each bucket are predicted to take least. The same on
/// all ranks. Collective.
std::size_t host_bucket_bytes(const Context& context, std::size_t total);

}  // namespace ddl
