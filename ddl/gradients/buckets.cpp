#include "ddl/gradients/buckets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/parameters/parameters.hpp"
#include "topology/json_fields.hpp"

namespace ddl {
namespace {

/// Cuts the gradients of a request into buckets; see `bucket_layout`.
class Packer {
 public:
  explicit Packer(const LayoutRequest& request) : request_(request) {}

  std::vector<BucketLayout> pack() {
    for (std::size_t i = 0; i < request_.order.size(); ++i) {
      const std::size_t gradient = request_.order[i];
      const bool goes_up = i + 1 < request_.order.size() && request_.order[i + 1] == gradient + 1;
      if (has_rows(gradient)) {
        add_rows(gradient);
      } else {
        add(gradient, goes_up);
      }
    }
    if (count_ > 0) close(0);
    return std::move(buckets_);
  }

 private:
  /// A piece, and the side from which elements move to the next bucket: the end if `goes_up`, else the start.
  struct Part {
    GradientPiece piece;
    bool goes_up;
  };

  [[nodiscard]] bool has_rows(std::size_t gradient) const {
    return !request_.rows.empty() && request_.rows[gradient] != 0 && request_.counts[gradient] > 0;
  }

  [[nodiscard]] DataType type_of(std::size_t gradient) const {
    return request_.types.empty() ? DataType::f32 : request_.types[gradient];
  }
  [[nodiscard]] std::size_t bucket_count() const {
    return std::max<std::size_t>(request_.bucket_bytes / size_of(type_), 1);
  }

  void add_rows(std::size_t gradient) {
    buckets_.push_back(
        {.pieces = {{gradient, 0, request_.counts[gradient]}}, .rows = true, .type = type_of(gradient)});
  }

  void add(std::size_t gradient, bool goes_up) {
    std::size_t left = request_.counts[gradient];
    if (left > 0 && type_of(gradient) != type_) {
      if (count_ > 0) close(0);
      type_ = type_of(gradient);
    }
    const std::size_t limit = bucket_count();
    if (left > room() && 2 * count_ >= limit && can_close()) close(leftover());
    while (left > 0) {
      const std::size_t count = std::min(left, room());
      const std::size_t first = goes_up ? request_.counts[gradient] - left : left - count;
      parts_.push_back({{gradient, first, count}, goes_up});
      count_ += count;
      left -= count;
      if (room() == 0) close(leftover());
    }
  }

  [[nodiscard]] std::size_t room() const {
    // At least `multiple`, because the remainder of one bucket moves to the next.
    const std::size_t limit = std::max(bucket_count(), request_.multiple);
    return limit > count_ ? limit - count_ : 0;
  }
  [[nodiscard]] bool can_close() const { return count_ >= request_.multiple; }
  [[nodiscard]] std::size_t leftover() const { return count_ % request_.multiple; }

  /// Ends a bucket. Its last `left_over` elements in order of readiness move to the next bucket.
  void close(std::size_t left_over) {
    std::vector<Part> next;
    std::size_t moved = 0;
    while (moved < left_over) {
      Part& last = parts_.back();
      const std::size_t count = std::min(left_over - moved, last.piece.count);
      Part part = last;
      part.piece.count = count;
      last.piece.count -= count;
      (last.goes_up ? part : last).piece.first += last.goes_up ? last.piece.count : count;
      if (last.piece.count == 0) parts_.pop_back();
      next.insert(next.begin(), part);
      moved += count;
    }
    BucketLayout bucket{.pieces = in_order(parts_), .type = type_};
    const std::size_t remainder = bucket.count() % request_.multiple;
    bucket.padding = remainder == 0 ? 0 : request_.multiple - remainder;
    buckets_.push_back(std::move(bucket));
    parts_ = std::move(next);
    count_ = left_over;
  }

  static std::vector<GradientPiece> in_order(const std::vector<Part>& parts) {
    std::vector<GradientPiece> pieces;
    for (const Part& part : parts) pieces.push_back(part.piece);
    std::ranges::sort(pieces, {}, [](const GradientPiece& p) { return std::pair(p.gradient, p.first); });
    std::vector<GradientPiece> joined;
    for (const GradientPiece& piece : pieces) {
      const bool goes_on = !joined.empty() && joined.back().gradient == piece.gradient &&
                           joined.back().first + joined.back().count == piece.first;
      if (goes_on) {
        joined.back().count += piece.count;
      } else {
        joined.push_back(piece);
      }
    }
    return joined;
  }

  const LayoutRequest& request_;
  std::vector<Part> parts_;  // of the current bucket, in order of readiness
  std::size_t count_ = 0;    // elements of the current bucket
  DataType type_ = DataType::f32;
  std::vector<BucketLayout> buckets_;
};

bool is_permutation(std::vector<std::size_t> order) {
  std::ranges::sort(order);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) return false;
  }
  return true;
}

}  // namespace

std::size_t BucketLayout::count() const noexcept {
  std::size_t sum = padding;
  for (const GradientPiece& piece : pieces) sum += piece.count;
  return sum;
}

std::vector<BucketLayout> bucket_layout(const LayoutRequest& request) { return Packer(request).pack(); }

template <typename Fields, topology::MaybeConst<LearnedBuckets> Value>
static void describe(Fields& fields, Value& state) {
  fields("format", state.format);
  fields.version("version", 1);
  fields("gradients", state.gradients);
  fields("bucket_bytes", state.bucket_bytes);
  fields("order", state.order, SIZE_MAX);
  fields("ranks", state.ranks);
  fields("plans", state.plans);
}

std::string LearnedBuckets::json() const { return topology::json_line(*this); }

LearnedBuckets LearnedBuckets::parse(std::string_view json, std::size_t count) {
  constexpr const char* source = "GradientReducer::restore";
  auto state = topology::parsed_json<LearnedBuckets>(json, source);
  const bool fits = state.order.empty() || (state.order.size() == count && is_permutation(state.order));
  if (fits && state.bucket_bytes != 0 && state.format == LearnedBuckets().format) return state;
  throw Error(ErrorCode::corrupt_data,
              fmt::format("{}: found a format, buckets or an order that cannot be, expected what "
                          "GradientReducer::state gave",
                          source));
}

std::vector<std::size_t> reverse_order(std::size_t gradients) {
  std::vector<std::size_t> order(gradients);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::vector<std::size_t> learn_order(Communicator& communicator, std::span<const std::size_t> own,
                                     std::size_t gradients) {
  std::vector<std::int64_t> places(gradients, static_cast<std::int64_t>(gradients));
  for (std::size_t i = 0; i < own.size(); ++i) places[own[i]] = static_cast<std::int64_t>(i);
  communicator.all_reduce(std::span(places), ReduceOp::sum);
  std::vector<std::size_t> order = reverse_order(gradients);
  std::ranges::stable_sort(order, {}, [&](std::size_t index) { return places[index]; });
  return order;
}

std::uint64_t hash_of_entries(const std::vector<std::string>& entries) noexcept {
  std::uint64_t hash = 0;
  for (const std::string& entry : entries) hash = hash_of(std::span(entry), hash);
  return hash;
}

std::size_t least_exposed_bytes(std::size_t total, double bucket_us,
                                const std::function<topology::Plan(std::size_t)>& plan_of) {
  const std::size_t least_bytes = std::bit_ceil(std::max(std::size_t{16} << 10, total / 32));
  const auto exposed_us = [&](std::size_t bytes) {
    const topology::Plan plan = plan_of(bytes);
    // A prediction is for the size of the plan's class.
    const double us = plan.predicted_us * static_cast<double>(bytes) /
                      static_cast<double>(std::max<std::uint64_t>(plan.bytes, 1));
    const double buckets = std::ceil(static_cast<double>(total) / static_cast<double>(bytes));
    return us + buckets * (us / 4 + bucket_us);
  };
  std::size_t best = std::max(total, least_bytes);
  double least_us = exposed_us(best);
  for (std::size_t bytes = least_bytes; bytes < total; bytes *= 2) {
    const double us = exposed_us(bytes);
    if (us < least_us) std::tie(best, least_us) = std::pair(bytes, us);
  }
  return best;
}

}  // namespace ddl
