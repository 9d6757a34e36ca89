#include "ddl/gradients/gradient_norm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

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

// value = mantissa * 2^exponent with a mantissa below 2^24.
void GradientNorm::add_exactly(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value) & 0x7fff'ffffU;
  if (bits >= 0x7f80'0000U) {
    ++not_finite_;
    return;
  }
  const int biased = static_cast<int>(bits >> 23);
  const std::uint64_t mantissa = (bits & 0x7f'ffffU) | (biased > 0 ? 0x80'0000U : 0U);
  const int exponent = 2 * ((biased > 0 ? biased : 1) - 150) - lowest_exponent;
  bins_[static_cast<std::size_t>(exponent / bin_bits)] += static_cast<Whole>(mantissa * mantissa)
                                                          << (exponent % bin_bits);
}

double GradientNorm::over_all(Communicator& communicator, std::span<double> counts) {
  sums_.assign(counts.begin(), counts.end());
  sums_.push_back(sum_);
  communicator.all_reduce(std::span(sums_));
  std::copy_n(sums_.begin(), counts.size(), counts.begin());
  return exact_ ? exact_over_all(communicator) : std::sqrt(sums_.back());
}

double GradientNorm::exact_over_all(Communicator& communicator) const {
  // In 32 bits each, so that 2^31 ranks can be added up.
  constexpr std::size_t parts = sizeof(Whole) / sizeof(std::uint32_t);
  std::array<std::int64_t, bins * parts + 1> sums{};
  for (std::size_t bin = 0; bin < bins; ++bin) {
    for (std::size_t part = 0; part < parts; ++part) {
      sums[bin * parts + part] = static_cast<std::uint32_t>(bins_[bin] >> (32 * part));
    }
  }
  sums.back() = not_finite_;
  communicator.all_reduce(std::span(sums));
  if (sums.back() != 0) return std::numeric_limits<double>::quiet_NaN();
  // Carried up to 32 bits each, the parts of all bins are one whole number with one form.
  static_assert(bin_bits == 32);
  std::array<std::uint64_t, bins + parts> digits{};
  std::uint64_t carry = 0;
  for (std::size_t digit = 0; digit < digits.size(); ++digit) {
    std::uint64_t sum = carry;
    for (std::size_t part = 0; part < parts && part <= digit; ++part) {
      if (digit - part < bins) sum += static_cast<std::uint64_t>(sums[(digit - part) * parts + part]);
    }
    digits[digit] = sum & 0xffff'ffffU;
    carry = sum >> 32;
  }
  double square = 0;
  for (std::size_t digit = digits.size(); digit-- > 0;) {
    square +=
        std::ldexp(static_cast<double>(digits[digit]), static_cast<int>(digit) * bin_bits + lowest_exponent);
  }
  return std::sqrt(square);
}

}  // namespace ddl
