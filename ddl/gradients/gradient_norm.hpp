#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "ddl/communicator.hpp"
#include "ddl/gradients/elementwise.hpp"
#include "ddl/gradients/gradient_pass.hpp"

namespace ddl {

/// The Euclidean norm of values that are distributed over ranks. Each value is added by one rank. Not
/// thread-safe.
class GradientNorm {
 public:
  /// `exact`: the result has the same bits whatever the parts, order and ranks in which values are added, and
  /// costs about 2 ns per value. Else it costs one pass at the speed of memory, and its bits depend on the
  /// parts.
  explicit GradientNorm(bool exact) : exact_(exact) {}

  void clear() noexcept {
    sum_ = 0;
    squares_ = {};
  }
  /// Adds values of a floating type. An exact norm rounds f64 values to f32.
  void add(ConstElements values) noexcept {
    if (!exact_) {
      sum_ += elementwise::sum_of_squares(values);
    } else if (values.type() == DataType::f64) {
      add_exactly(static_cast<const double*>(values.data()), values.size());
    } else if (values.type() == DataType::f32) {
      add_exactly(static_cast<const float*>(values.data()), values.size());
    } else {
      elementwise::in_blocks(values, [&](std::size_t, std::span<const float> block) {
        add_exactly(block.data(), block.size());
      });
    }
  }
  /// Adds a value that is not finite.
  void add_overflow() noexcept {
    sum_ = std::numeric_limits<double>::infinity();
    ++squares_.not_finite;
  }
  /// Adds `values`, and then multiplies them in place by `factor`. One pass over memory. What overflows 16
  /// bits counts as not finite.
  void add_and_scale(Elements values, double factor) noexcept {
    if (factor == 1) return add(values);
    if (!exact_ && (values.type() == DataType::f32 || values.type() == DataType::f64)) {
      sum_ += elementwise::square_and_scale(values, factor);
      return;
    }
    constexpr std::size_t block = 4096;  // fits the L1 cache
    for (std::size_t at = 0; at < values.size(); at += block) {
      const Elements part = values.subspan(at, std::min(block, values.size() - at));
      add(part);
      if (!elementwise::scale(part, factor)) add_overflow();
    }
  }
  /// The norm over all ranks, the same on each; not finite if a value is not. The same all-reduce replaces
  /// `counts` by their sums over all ranks. Collective.
  [[nodiscard]] double over_all(Communicator& communicator, std::span<double> counts = {}) {
    sums_.assign(counts.begin(), counts.end());
    sums_.push_back(sum_);
    communicator.all_reduce(std::span(sums_));
    std::copy_n(sums_.begin(), counts.size(), counts.begin());
    return exact_ ? exact_over_all(communicator) : std::sqrt(sums_.back());
  }

 private:
  template <typename Float>
  void add_exactly(const Float* values, std::size_t count) noexcept {
    SquareCollector collector;
    const AddInTurn add{squares_};
    for (std::size_t i = 0; i < count; ++i) collector.collect(static_cast<float>(values[i]), add);
    collector.flush(add);
    carry(squares_);  // so that neither later sums nor the one over 2^31 ranks can overflow
  }
  [[nodiscard]] double exact_over_all(Communicator& communicator) const {
    ExactSquares squares = squares_;
    communicator.all_reduce(&squares, ExactSquares::numbers, DataType::i64, ReduceOp::sum);
    carry(squares);
    return std::sqrt(value_of(squares));
  }

  bool exact_;
  double sum_ = 0;
  std::vector<double> sums_;  // scratch of over_all
  ExactSquares squares_ = {};
};

}  // namespace ddl
