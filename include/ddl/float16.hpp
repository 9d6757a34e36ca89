#pragma once

#include <bit>
#include <cstdint>

#include "ddl/cxx20.hpp"  // first: the rest does not compile without C++20

namespace ddl {

/// IEEE 754 binary16: 1 sign, 5 exponent and 10 mantissa bits; largest value 65,504. A storage type: convert
/// to float for arithmetic. Conversion to float is exact. Conversion from float rounds to nearest even;
/// values beyond the range become infinite, and a NaN becomes a quiet NaN with the upper bits of its payload.
/// Conversions use integer arithmetic, so they do not depend on the processor's rounding and denormal modes.
struct float16 {
  std::uint16_t bits;  ///< The encoding. Uninitialised after default construction.

  /// Leaves `bits` uninitialised.
  float16() = default;
  /// `value`, rounded to nearest even.
  explicit constexpr float16(float value) noexcept : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  /// The number with the encoding `value`.
  static constexpr float16 from_bits(std::uint16_t value) noexcept {
    float16 result{};
    result.bits = value;
    return result;
  }

  /// The same number as a float; exact.
  explicit constexpr operator float() const noexcept { return std::bit_cast<float>(widen(bits)); }

  /// Compares numbers, not encodings: -0 equals 0, and a NaN equals nothing.
  friend constexpr bool operator==(float16 a, float16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }

 private:
  static constexpr std::uint16_t round(std::uint32_t wide) noexcept {
    const std::uint32_t sign = (wide >> 16) & 0x8000U;
    const std::uint32_t magnitude = wide & 0x7fff'ffffU;
    std::uint32_t result = 0;
    if (magnitude > 0x7f80'0000U) {  // NaN
      result = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
    } else if (magnitude >= 0x4780'0000U) {  // 65,536 and above
      result = 0x7c00U;
    } else if (magnitude >= 0x3880'0000U) {  // 2^-14: normal. The carry of 65,520 and above gives infinity.
      result = round_shift(magnitude - 0x3800'0000U, 13);
    } else if (magnitude >= 0x3300'0000U) {  // 2^-25: to multiples of 2^-24
      result = round_shift((magnitude & 0x7f'ffffU) | 0x80'0000U, static_cast<int>(126 - (magnitude >> 23)));
    }
    return static_cast<std::uint16_t>(sign | result);
  }

  static constexpr std::uint32_t widen(std::uint16_t narrow) noexcept {
    const std::uint32_t sign = (narrow & 0x8000U) << 16;
    std::uint32_t exponent = (narrow >> 10) & 0x1fU;
    std::uint32_t mantissa = narrow & 0x3ffU;
    if (exponent == 0x1fU) return sign | 0x7f80'0000U | (mantissa << 13) | (mantissa != 0 ? 0x40'0000U : 0);
    if (exponent == 0) {
      if (mantissa == 0) return sign;
      const int shift = std::countl_zero(mantissa) - 21;  // until bit 10, the implicit one, is set
      mantissa = (mantissa << shift) & 0x3ffU;
      exponent = static_cast<std::uint32_t>(1 - shift);  // wraps; the sum below is positive again
    }
    return sign | ((exponent + 112) << 23) | (mantissa << 13);
  }

  static constexpr std::uint32_t round_shift(std::uint32_t value, int shift) noexcept {
    const std::uint32_t odd = (value >> shift) & 1U;
    return (value + (1U << (shift - 1)) - 1 + odd) >> shift;
  }
};

/// bfloat16, the upper half of a float: 1 sign, 8 exponent and 7 mantissa bits. A storage type with
/// conversions like those of `float16`.
struct bfloat16 {
  std::uint16_t bits;  ///< The encoding. Uninitialised after default construction.

  /// Leaves `bits` uninitialised.
  bfloat16() = default;
  /// `value`, rounded to nearest even.
  explicit constexpr bfloat16(float value) noexcept : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  /// The number with the encoding `value`.
  static constexpr bfloat16 from_bits(std::uint16_t value) noexcept {
    bfloat16 result{};
    result.bits = value;
    return result;
  }

  /// The same number as a float; exact.
  explicit constexpr operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  /// Compares numbers, not encodings: -0 equals 0, and a NaN equals nothing.
  friend constexpr bool operator==(bfloat16 a, bfloat16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }

 private:
  static constexpr std::uint16_t round(std::uint32_t wide) noexcept {
    if ((wide & 0x7fff'ffffU) > 0x7f80'0000U) return static_cast<std::uint16_t>((wide >> 16) | 0x40U);
    return static_cast<std::uint16_t>((wide + 0x7fffU + ((wide >> 16) & 1U)) >> 16);
  }
};

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);

}  // namespace ddl
