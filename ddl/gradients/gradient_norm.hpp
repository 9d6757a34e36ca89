#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
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
    not_finite_ = 0;
    bins_.fill(0);
  }
  /// Adds f32 or f64 values. An exact norm rounds f64 values to f32.
  void add(ConstElements values) noexcept {
    if (!exact_) {
      sum_ += elementwise::sum_of_squares(values);
    } else if (values.type() == DataType::f64) {
      const auto* const data = static_cast<const double*>(values.data());
      for (std::size_t i = 0; i < values.size(); ++i) add_exactly(static_cast<float>(data[i]));
    } else {
      const auto* const data = static_cast<const float*>(values.data());
      for (std::size_t i = 0; i < values.size(); ++i) add_exactly(data[i]);
    }
  }
  /// Adds a value that is not finite.
  void add_overflow() noexcept {
    sum_ = std::numeric_limits<double>::infinity();
    ++not_finite_;
  }
  /// Adds `values`, and then multiplies them in place by `factor`. One pass over memory.
  void add_and_scale(Elements values, double factor) noexcept {
    if (factor == 1) return add(values);
    if (!exact_) {
      sum_ += elementwise::square_and_scale(values, factor);
      return;
    }
    constexpr std::size_t block = 4096;  // fits the L1 cache
    for (std::size_t at = 0; at < values.size(); at += block) {
      const Elements part = values.subspan(at, std::min(block, values.size() - at));
      add(part);
      elementwise::scale(part, factor);
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
  // The sum of squares in one bin, as an integer. Each square is below 2^80 in units of its bin.
  __extension__ using Whole = unsigned __int128;

  void add_exactly(float value) noexcept {
    if (!is_finite(value)) {
      ++not_finite_;
      return;
    }
    const SquareInBin square = square_in_bin(value);
    bins_[static_cast<std::size_t>(square.bin)] += static_cast<Whole>(square.root) << square.shift;
  }
  [[nodiscard]] double exact_over_all(Communicator& communicator) const {
    ExactSquares squares{};
    for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
      for (std::size_t part = 0; part < sizeof(Whole) / sizeof(std::uint32_t); ++part) {
        squares.digit[bin + part] += static_cast<std::uint32_t>(bins_[bin] >> (32 * part));
      }
    }
    squares.not_finite = not_finite_;
    carry(squares);  // so that the sum over 2^31 ranks cannot overflow
    communicator.all_reduce(&squares, ExactSquares::numbers, DataType::i64, ReduceOp::sum);
    carry(squares);
    return std::sqrt(value_of(squares));
  }

  bool exact_;
  double sum_ = 0;
  std::vector<double> sums_;  // scratch of over_all
  std::uint64_t not_finite_ = 0;
  std::array<Whole, ExactSquares::bins> bins_{};
};

}  // namespace ddl
