#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/communicator.hpp"
#include "ddl/context.hpp"
#include "ddl/gradient_reducer.hpp"

namespace ddl {

constexpr bool is_narrow(DataType type) noexcept { return type == DataType::f16 || type == DataType::bf16; }

/// The type in which gradients of `type` are summed, and in which they travel inside a host: f32 for 16-bit
/// floats, which are rounded once at the end, unless `narrow_sums`.
constexpr DataType summed_type(DataType type, bool narrow_sums = false) noexcept {
  return type == DataType::f64 || (narrow_sums && is_narrow(type)) ? type : DataType::f32;
}

/// The contents of a bucket, which is reduced by one collective.
struct BucketLayout {
  std::vector<GradientPiece> pieces;  ///< In order of registration.
  std::size_t padding = 0;            ///< Elements after the last piece, which belong to no gradient.
  bool rows = false;              ///< Whether it is one whole gradient, of which only some rows may travel.
  DataType type = DataType::f32;  ///< The type in which its gradients are summed.

  [[nodiscard]] std::size_t count() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * size_of(type); }

  friend bool operator==(const BucketLayout&, const BucketLayout&) = default;
};

/// The layout of the parameters of a bucket's gradients. They have all their bits where 16-bit gradients are
/// summed in 16 bits.
inline BucketLayout layout_of_parameters(BucketLayout layout) {
  layout.type = summed_type(layout.type);
  return layout;
}

/// The memory of a bucket's pieces if it can be reduced in place: the pieces are adjacent and of the bucket's
/// type, and there is no padding. Else empty. `owners`: gradients or parameters, in order of registration.
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

/// The arguments of `bucket_layout`; the same on all ranks.
struct LayoutRequest {
  std::span<const std::size_t> counts;  ///< Elements of each gradient.
  std::span<const std::uint8_t>
      rows;  ///< Whether each gradient is a bucket of its own, by rows; empty: none.
  std::span<const std::size_t> order;    ///< All gradients, in the order in which they become ready.
  std::size_t bucket_bytes = 4;          ///< Largest size of a bucket; one element always fits.
  std::size_t multiple = 1;              ///< Divides each bucket's element count, except in buckets of rows.
  std::span<const DataType> types = {};  ///< The type in which each gradient is summed; empty: f32.
};

/// Cuts gradients into buckets, in the order in which they can be reduced.
///
/// A bucket ends before a gradient that is summed in another type, and before one that does not fit if the
/// bucket is at least half full. A gradient larger than a bucket is cut so that its remainder is adjacent, in
/// order of registration, to the gradient that comes next: the buckets of an orderly backward pass are
/// contiguous in memory. Elements in excess of a multiple move to the next bucket; the last one is padded.
std::vector<BucketLayout> bucket_layout(const LayoutRequest& request);

/// A reducer's state: what its sums depend on beyond its options and the communicator's plans.
struct LearnedBuckets {
  std::string format = "ddl gradient reducer";
  std::uint64_t gradients = 0;  ///< A hash of the gradients' names, sizes and types, and of the options.
  std::size_t bucket_bytes = 0;
  std::vector<std::size_t> order;  ///< The order of readiness; empty before it is learned.
  int ranks = 0;
  std::uint64_t plans = 0;  ///< A hash of the plans by which buckets are reduced.

  [[nodiscard]] std::string json() const;
  /// Throws `corrupt_data` unless `json` is such a state, with no order or one of `count` gradients.
  static LearnedBuckets parse(std::string_view json, std::size_t count);
};

/// All gradients, the last registered first.
std::vector<std::size_t> reverse_order(std::size_t gradients);
/// All gradients, sorted by the mean over all ranks of each one's position in `own`, which lists the
/// gradients that had values on this rank in order of readiness. A gradient that is not listed counts as
/// last; of equal ones the last registered comes first. Collective; the same on all ranks.
std::vector<std::size_t> learn_order(Communicator& communicator, std::span<const std::size_t> own,
                                     std::size_t gradients);

/// A hash of all entries in their order.
std::uint64_t hash_of_entries(const std::vector<std::string>& entries) noexcept;

/// What a bucket costs the trainer's thread, in us: to queue it and wake the progress thread; to queue its
/// work on a device.
constexpr double host_bucket_us = 4, device_bucket_us = 20;

/// The size of buckets, in bytes, for gradients of `total` bytes: the power of two from 16 KiB, or `total`,
/// with at most 32 buckets and the least us(last bucket) + us(all buckets) / 4 + buckets x `bucket_us`, for
/// the predictions of `plan_of`. Backward cannot hide the last bucket; it hides most of the others, unless
/// they take longer than it does. `bucket_us`: what each bucket costs the trainer's thread.
std::size_t least_exposed_bytes(std::size_t total, double bucket_us,
                                const std::function<topology::Plan(std::size_t)>& plan_of);

}  // namespace ddl
