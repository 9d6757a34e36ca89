#pragma once

// Sums of squares of floats with the same bits in whatever order, and on whatever ranks, they are added: for
// the host and for kernels on devices.

#include <cstdint>

#include "collectives/kernels/host_device.hpp"

namespace ddl {

/// A whole number of 2^-298, which squares of floats are multiples of, in digits of 32 bits; digits may be
/// larger until `carry`, so that 2^32 squares can be added.
struct ExactSquares {
  static constexpr int lowest_exponent = -298;
  static constexpr int digit_bits = 32;
  static constexpr int bins = 18;  ///< Digits that squares begin in: they are below 2^256.
  static constexpr int digits = bins + 4;
  static constexpr int numbers = digits + 1;

  std::uint64_t digit[digits];
  std::uint64_t not_finite;  ///< How many values were not.
};
static_assert(sizeof(ExactSquares) == ExactSquares::numbers * sizeof(std::uint64_t));

/// root * 2^shift in units of digit `bin`, with a root below 2^48 and a shift below 32.
struct SquareInBin {
  std::uint64_t root;
  int bin;
  int shift;
};

DDL_HOST_DEVICE bool is_finite(float value) {
  return (__builtin_bit_cast(std::uint32_t, value) & 0x7fff'ffffU) < 0x7f80'0000U;
}

/// Of a value that is finite: mantissa * 2^exponent, with a mantissa below 2^24.
DDL_HOST_DEVICE SquareInBin square_in_bin(float value) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value) & 0x7fff'ffffU;
  const int biased = static_cast<int>(bits >> 23);
  const std::uint64_t mantissa = (bits & 0x7f'ffffU) | (biased > 0 ? 0x80'0000U : 0U);
  const int exponent = 2 * ((biased > 0 ? biased : 1) - 150) - ExactSquares::lowest_exponent;
  return {mantissa * mantissa, exponent / ExactSquares::digit_bits, exponent % ExactSquares::digit_bits};
}

/// Collects a thread's squares, which mostly begin in one digit or two. `add(digit, number)` takes what it
/// has collected, and `ExactSquares::digits` for the digit counts what is not finite.
class SquareCollector {
 public:
  template <typename Add>
  DDL_HOST_DEVICE void collect(float value, const Add& add) {
    if (!is_finite(value)) return add(ExactSquares::digits, 1);
    const SquareInBin square = square_in_bin(value);
    if (square.bin != bin_) flush(add);
    bin_ = square.bin;
    const std::uint64_t low = square.root << square.shift;
    low_ += low;
    high_ += (square.shift > 0 ? square.root >> (64 - square.shift) : 0) + (low_ < low ? 1 : 0);
  }
  template <typename Add>
  DDL_HOST_DEVICE void flush(const Add& add) {
    if ((low_ | high_) != 0) {
      add(bin_, low_ & 0xffff'ffffU);
      add(bin_ + 1, low_ >> 32);
      add(bin_ + 2, high_ & 0xffff'ffffU);
      add(bin_ + 3, high_ >> 32);
    }
    low_ = high_ = 0;
  }

 private:
  int bin_ = 0;
  std::uint64_t low_ = 0, high_ = 0;
};

/// Every number has one form then.
DDL_HOST_DEVICE void carry(ExactSquares& squares) {
  std::uint64_t over = 0;
  for (std::uint64_t& digit : squares.digit) {
    const std::uint64_t sum = digit + over;
    digit = sum & 0xffff'ffffU;
    over = sum >> 32;
  }
}

/// Of a number that has been carried; NaN where a value was not finite.
DDL_HOST_DEVICE double value_of(const ExactSquares& squares) {
  if (squares.not_finite != 0) return __builtin_bit_cast(double, std::uint64_t{0x7ff8'0000'0000'0000});
  double sum = 0;
  for (int i = ExactSquares::digits - 1; i >= 0; --i) {
    const int exponent = i * ExactSquares::digit_bits + ExactSquares::lowest_exponent;
    sum += static_cast<double>(squares.digit[i]) *
           __builtin_bit_cast(double, static_cast<std::uint64_t>(1023 + exponent) << 52U);
  }
  return sum;
}

}  // namespace ddl
