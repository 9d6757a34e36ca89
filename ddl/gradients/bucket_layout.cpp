#include "ddl/gradients/bucket_layout.hpp"

#include <algorithm>
#include <utility>

namespace ddl {
namespace {

/// Fills one bucket after the other.
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
  /// A piece, and from which side elements are taken away from it.
  struct Part {
    GradientPiece piece;
    bool goes_up;
  };

  [[nodiscard]] bool has_rows(std::size_t gradient) const {
    return !request_.rows.empty() && request_.rows[gradient] != 0 && request_.counts[gradient] > 0;
  }

  void add_rows(std::size_t gradient) {
    buckets_.push_back({.pieces = {{gradient, 0, request_.counts[gradient]}}, .rows = true});
  }

  void add(std::size_t gradient, bool goes_up) {
    std::size_t left = request_.counts[gradient];
    const std::size_t limit = request_.bucket_count;
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
    // What is left over of one bucket begins the next, so a bucket holds a multiple at least.
    const std::size_t limit = std::max(request_.bucket_count, request_.multiple);
    return limit > count_ ? limit - count_ : 0;
  }
  [[nodiscard]] bool can_close() const { return count_ >= request_.multiple; }
  [[nodiscard]] std::size_t leftover() const { return count_ % request_.multiple; }

  /// Ends a bucket; `left_over` elements, those that became ready last, begin the next one.
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
    BucketLayout bucket{.pieces = in_order(parts_)};
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
  std::vector<Part> parts_;  // of the bucket that is being filled, in order of readiness
  std::size_t count_ = 0;    // its elements
  std::vector<BucketLayout> buckets_;
};

}  // namespace

std::size_t BucketLayout::count() const noexcept {
  std::size_t sum = padding;
  for (const GradientPiece& piece : pieces) sum += piece.count;
  return sum;
}

std::vector<BucketLayout> bucket_layout(const LayoutRequest& request) { return Packer(request).pack(); }

}  // namespace ddl
