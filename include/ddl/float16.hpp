#pragma once

#include <bit>
#include <cstdint>

#include "ddl/cxx20.hpp"  // first: what follows fails without

namespace ddl {

/// IEEE 754 binary16: 1 sign, 5 exponent and 10 mantissa bits; up to 65,504. For storage: arithmetic is done
/// in float. Conversions are exact towards float, and round to nearest even towards float16; a NaN stays one
/// (quiet, with the upper bits of its payload), and numbers beyond the range become infinite. They are
/// integer arithmetic, independent of the processor's modes.
struct float16 {
  std::uint16_t bits;

  float16() = default;
  explicit constexpr float16(float value) noexcept : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  static constexpr float16 from_bits(std::uint16_t value) noexcept {
    float16 result{};
    result.bits = value;
    return result;
  }

  explicit constexpr operator float() const noexcept { return std::bit_cast<float>(widen(bits)); }

  /// As numbers: -0 equals 0, a NaN equals nothing.
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

/// The upper half of a float: 8 exponent and 7 mantissa bits. Otherwise as `float16`.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  explicit constexpr bfloat16(float value) noexcept : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  static constexpr bfloat16 from_bits(std::uint16_t value) noexcept {
    bfloat16 result{};
    result.bits = value;
    return result;
  }

  explicit constexpr operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

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
