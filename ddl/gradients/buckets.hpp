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

/// What gradients of a type are summed in, and travel as inside a host: 16-bit floats in f32, rounded once at
/// the end.
constexpr DataType summed_type(DataType type) noexcept {
  return type == DataType::f64 ? DataType::f64 : DataType::f32;
}

/// What is reduced as one: pieces in order of registration.
struct BucketLayout {
  std::vector<GradientPiece> pieces;
  std::size_t padding = 0;        ///< Elements after the last piece, which belong to no gradient.
  bool rows = false;              ///< The whole of a gradient whose rows may travel alone.
  DataType type = DataType::f32;  ///< What all its gradients are summed in.

  [[nodiscard]] std::size_t count() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * size_of(type); }

  friend bool operator==(const BucketLayout&, const BucketLayout&) = default;
};

/// The memory of a bucket's pieces, if it can be reduced in place: they are adjacent, of the bucket's type,
/// and there is no padding. Else empty. `owners`: gradients or parameters, in order of registration.
template <typename Owners>
Elements one_run(const BucketLayout& layout, const Owners& owners) {
  if (layout.padding > 0 || layout.pieces.empty()) return {};
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  for (const GradientPiece& piece : layout.pieces) {
    const Elements values = owners[piece.gradient].values.subspan(piece.first, piece.count);
    if (begin == nullptr) begin = values.bytes().data();
    if (values.type() != layout.type || values.data() != begin + bytes) return {};
    bytes += values.bytes().size();
  }
  return {begin, layout.count(), layout.type};
}

/// What a layout is made from: the same on all ranks.
struct LayoutRequest {
  std::span<const std::size_t> counts;  ///< Elements of each gradient.
  std::span<const std::uint8_t> rows;   ///< Whether a gradient is a bucket of its own, by rows; empty: none.
  std::span<const std::size_t> order;   ///< All gradients, in the order in which they become ready.
  std::size_t bucket_bytes = 4;         ///< Of a bucket, at most; but a bucket has an element at least.
  std::size_t multiple = 1;             ///< What each bucket's count is a multiple of, but for those of rows.
  std::span<const DataType> types = {};  ///< What each gradient is summed in; empty: f32.
};

/// Cuts gradients into buckets, in the order in which they can be reduced.
///
/// A bucket ends where the next gradient is summed in another type, and with a gradient where it is at least
/// half full by then; a gradient that is larger than a
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
