#include "ddl/gradients/gradient_norm.hpp"

#include <algorithm>
#include <cmath>

#include "ddl/gradients/elementwise.hpp"

namespace ddl {

void GradientNorm::clear() noexcept {
  sum_ = 0;
  not_finite_ = 0;
  bins_.fill(0);
}

void GradientNorm::add(std::span<const float> values) noexcept {
  if (!exact_) {
    sum_ += elementwise::sum_of_squares(values);
    return;
  }
  for (const float value : values) add_exactly(value);
}

void GradientNorm::add_and_scale(std::span<float> values, double factor) noexcept {
  if (factor == 1) return add(values);
  if (!exact_) {
    sum_ += elementwise::square_and_scale(values, factor);
    return;
  }
  constexpr std::size_t block = 4096;  // stays in the first cache
  for (std::size_t at = 0; at < values.size(); at += block) {
    const std::span<float> part = values.subspan(at, std::min(block, values.size() - at));
    add(part);
    elementwise::scale(part, factor);
  }
}

void GradientNorm::add_exactly(float value) noexcept {
  if (!is_finite(value)) {
    ++not_finite_;
    return;
  }
  const SquareInBin square = square_in_bin(value);
  bins_[static_cast<std::size_t>(square.bin)] += static_cast<Whole>(square.root) << square.shift;
}

double GradientNorm::over_all(Communicator& communicator, std::span<double> counts) {
  sums_.assign(counts.begin(), counts.end());
  sums_.push_back(sum_);
  communicator.all_reduce(std::span(sums_));
  std::copy_n(sums_.begin(), counts.size(), counts.begin());
  return exact_ ? exact_over_all(communicator) : std::sqrt(sums_.back());
}

double GradientNorm::exact_over_all(Communicator& communicator) const {
  ExactSquares squares{};
  for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
    for (std::size_t part = 0; part < sizeof(Whole) / sizeof(std::uint32_t); ++part) {
      squares.digit[bin + part] += static_cast<std::uint32_t>(bins_[bin] >> (32 * part));
    }
  }
  squares.not_finite = not_finite_;
  carry(squares);  // so that 2^31 ranks can be added up
  communicator.all_reduce(&squares, ExactSquares::numbers, DataType::i64, ReduceOp::sum);
  carry(squares);
  return std::sqrt(value_of(squares));
}

}  // namespace ddl
