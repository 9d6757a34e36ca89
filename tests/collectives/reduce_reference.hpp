#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ddl/data_type.hpp"

namespace ddl {

/// The format of a 16-bit float, for conversions in fp64 that share no code with the library's.
struct NarrowFormat {
  int mantissa_bits;
  int least_exponent;  // smallest one of normal numbers
  int greatest_exponent;

  [[nodiscard]] double value(std::uint16_t bits) const {
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const int exponent = (bits & 0x7fff) >> mantissa_bits;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == greatest_exponent - least_exponent + 2) {
      return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                           : sign * std::numeric_limits<double>::infinity();
    }
    if (exponent == 0) return sign * std::ldexp(mantissa, least_exponent - mantissa_bits);
    return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - 1 + least_exponent - mantissa_bits);
  }

  /// Rounds to nearest even. Not for NaN.
  [[nodiscard]] std::uint16_t bits(double value) const {
    const int sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    const int infinity = (greatest_exponent - least_exponent + 2) << mantissa_bits;
    if (magnitude == 0) return static_cast<std::uint16_t>(sign);
    if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
    const int unit = std::max(std::ilogb(magnitude), least_exponent) - mantissa_bits;
    const double units = std::nearbyint(std::ldexp(magnitude, -unit));  // the carry may reach infinity
    const int result = ((unit + mantissa_bits - least_exponent) << mantissa_bits) + static_cast<int>(units);
    return static_cast<std::uint16_t>(sign | std::min(result, infinity));
  }
};

inline constexpr NarrowFormat half_format{10, -14, 15};
inline constexpr NarrowFormat brain_format{7, -126, 127};

template <typename T>
inline constexpr bool is_narrow = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <typename T>
constexpr const NarrowFormat& format_of() {
  return std::is_same_v<T, float16> ? half_format : brain_format;
}

template <Element T>
bool is_nan(T value) {
  if constexpr (is_narrow<T>) return std::isnan(format_of<T>().value(value.bits));
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

/// Whether a and b have the same bits or are both NaN.
template <Element T>
bool is_same(T a, T b) {
  return (is_nan(a) && is_nan(b)) || std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// The same, with +0 equal to -0.
template <Element T>
bool is_equal(T a, T b) {
  return is_same(a, b) || a == b;
}

/// x op y, in the type of partial results: f32 for 16-bit floats.
template <typename T>
T combined(ReduceOp op, T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<T>::quiet_NaN();
    if (op == ReduceOp::min) return std::fmin(x, y);
    if (op == ReduceOp::max) return std::fmax(x, y);
    // Computing in f64 and rounding to f32 gives the same as f32, because 53 >= 2 * 24 + 2.
    const auto a = static_cast<double>(x);
    const auto b = static_cast<double>(y);
    return static_cast<T>(op == ReduceOp::prod ? a * b : a + b);
  } else {
    if (op == ReduceOp::min) return std::min(x, y);
    if (op == ReduceOp::max) return std::max(x, y);
    __extension__ using Wide = unsigned __int128;
    const auto a = static_cast<Wide>(x);
    const auto b = static_cast<Wide>(y);
    return static_cast<T>(op == ReduceOp::prod ? a * b : a + b);  // modulo 2^n
  }
}

template <typename T>
T divided(T x, int divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(static_cast<double>(x) / divisor);
  } else {
    __extension__ using Wide = __int128;
    return static_cast<T>(static_cast<Wide>(x) / divisor);
  }
}

/// The expected result of `reduce` for element i of all vectors in `inputs`.
template <Element T, typename Inputs>
T reduced_element(ReduceOp op, const Inputs& inputs, std::size_t i, int divisor) {
  const bool divides = op == ReduceOp::avg && divisor > 1;
  if (inputs.size() == 1 && !divides) return inputs[0][i];
  if constexpr (is_narrow<T>) {
    const auto value = [&](std::size_t k) {
      return static_cast<float>(format_of<T>().value(inputs[k][i].bits));
    };
    float result = value(0);
    for (std::size_t k = 1; k < inputs.size(); ++k) result = combined(op, result, value(k));
    if (divides) result = divided(result, divisor);
    if (std::isnan(result)) return T(std::numeric_limits<float>::quiet_NaN());
    return T::from_bits(format_of<T>().bits(result));
  } else {
    T result = inputs[0][i];
    for (std::size_t k = 1; k < inputs.size(); ++k) result = combined(op, result, inputs[k][i]);
    return divides ? divided(result, divisor) : result;
  }
}

}  // namespace ddl
