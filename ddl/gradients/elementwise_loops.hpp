#pragma once

// The loops of elementwise.hpp, compiled once for each instruction set; the remark in kernel_vectors.hpp
// holds here too. All give the same bits: sums use the same lanes, and the compiler must not fuse operations.

#include "collectives/kernels/kernel_vectors.hpp"
#include "ddl/gradients/elementwise_kernels.hpp"

namespace ddl::elementwise {
namespace {

using collectives::Floats;
using collectives::load;
using collectives::store;
using Doubles = collectives::Vector<double>;
constexpr std::size_t float_lanes = sizeof(Floats) / sizeof(float);
constexpr std::size_t double_lanes = sizeof(Doubles) / sizeof(double);

#if defined(__AVX2__)  // the portable form takes twice as many instructions with GCC 12
[[gnu::always_inline]] inline Doubles load_doubles(const float* from) {
  return _mm256_cvtps_pd(_mm_loadu_ps(from));
}
[[gnu::always_inline]] inline void store_doubles(float* to, Doubles values) {
  _mm_storeu_ps(to, _mm256_cvtpd_ps(values));
}
#else
using HalfOfFloats = collectives::VectorType<float, collectives::width / 2>::type;
[[gnu::always_inline]] inline Doubles load_doubles(const float* from) {
  return __builtin_convertvector(load<HalfOfFloats>(from), Doubles);
}
[[gnu::always_inline]] inline void store_doubles(float* to, Doubles values) {
  store(to, __builtin_convertvector(values, HalfOfFloats));
}
#endif

/// a * b + c with a single rounding.
[[gnu::always_inline]] inline float fused(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  // The product is exact in double. The sum is rounded to odd, so that rounding it to float gives the
  // correctly rounded result (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", IEEE Trans.
  // Comput. 57, 2008).
  const double product = static_cast<double>(a) * b;
  const double other = c;
  const double sum = product + other;
  const double of_other = sum - product;
  const double lost = (product - (sum - of_other)) + (other - of_other);
  auto bits = __builtin_bit_cast(std::uint64_t, sum);
  const bool is_finite = (bits & 0x7ff0'0000'0000'0000U) != 0x7ff0'0000'0000'0000U;
  if (is_finite && lost != 0 && (bits & 1U) == 0) bits += (lost > 0) == (sum > 0) ? 1U : ~std::uint64_t{0};
  return static_cast<float>(__builtin_bit_cast(double, bits));
#endif
}

[[gnu::always_inline]] inline Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  Floats result;
  for (std::size_t lane = 0; lane < float_lanes; ++lane) result[lane] = fused(a[lane], b[lane], c[lane]);
  return result;
#endif
}

/// A factor as the sum of two floats of the same sign, so that an infinite value stays infinite.
struct Factor {
  float high;
  float low;

  explicit Factor(double factor) : high(static_cast<float>(factor)) {
    const double magnitude = __builtin_fabs(factor);
    if (__builtin_fabsf(high) > magnitude) {
      high = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, high) - 1);
    }
    low = static_cast<float>(factor - high);
  }
};

/// Multiplies a vector or a single value by a factor that is one float.
struct ByFloat {
  Factor factor;
  [[gnu::always_inline]] Floats operator()(Floats values) const { return values * factor.high; }
  [[gnu::always_inline]] float operator()(float value) const { return value * factor.high; }
};
/// The same for a factor that is the sum of two floats.
struct ByTwoFloats {
  Factor factor;
  [[gnu::always_inline]] Floats operator()(Floats values) const {
    return fused(values, Floats{} + factor.high, values * factor.low);
  }
  [[gnu::always_inline]] float operator()(float value) const {
    return fused(value, factor.high, value * factor.low);
  }
};
/// The same for any factor; slower.
struct ByDouble {
  double factor;
  [[gnu::always_inline]] Floats operator()(Floats values) const {
    Floats result;
    for (std::size_t lane = 0; lane < float_lanes; ++lane) result[lane] = (*this)(values[lane]);
    return result;
  }
  [[gnu::always_inline]] float operator()(float value) const { return static_cast<float>(value * factor); }
};

/// Calls `loop` with the fastest of these classes that multiplies by `factor`.
template <typename Loop>
[[gnu::always_inline]] inline auto multiplying_by(double factor, const Loop& loop) {
  const double magnitude = __builtin_fabs(factor);
  const bool in_range = magnitude > 0x1p-64 && magnitude < 0x1p64;  // neither part under- or overflows
  if (!in_range) return loop(ByDouble{factor});
  const Factor parts(factor);
  if (parts.low == 0) return loop(ByFloat{parts});
  return loop(ByTwoFloats{parts});
}

/// `target` may be `source`.
void scale_into(float* target, const float* source, std::size_t count, double factor) noexcept {
  multiplying_by(factor, [=](const auto& multiply) {
    std::size_t i = 0;
    for (; i + float_lanes <= count; i += float_lanes) {
      store(target + i, multiply(load<Floats>(source + i)));
    }
    for (; i < count; ++i) target[i] = multiply(source[i]);
  });
}

template <std::size_t number>
[[gnu::always_inline]] inline double sum_of_lanes(const Doubles (&parts)[number]) {
  double sum = 0;
  for (const Doubles& part : parts) {
    for (std::size_t lane = 0; lane < double_lanes; ++lane) sum += part[lane];
  }
  return sum;
}

double squares_in_double(const float* values, std::size_t count) noexcept {
  constexpr std::size_t lanes = 16;
  Doubles sums[lanes / double_lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < lanes / double_lanes; ++v) {
      const Doubles value = load_doubles(values + i + v * double_lanes);
      sums[v] += value * value;
    }
  }
  double sum = sum_of_lanes(sums);
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

// Squares are added up in float in 32 lanes, at most 16 in each lane, before the sums continue in double.
constexpr std::size_t square_lanes = 32;
constexpr std::size_t square_block = 16 * square_lanes;
constexpr std::size_t folded_lanes = 8;

/// Calls `see(at, vector)` or `see_one(at)` after reading values at index `at`; these may then overwrite
/// them.
template <typename See, typename SeeOne>
[[gnu::always_inline]] inline double squares_in_float(const float* values, std::size_t count, const See& see,
                                                      const SeeOne& see_one) {
  constexpr std::size_t vectors = square_lanes / float_lanes;
  Doubles totals[folded_lanes / double_lanes] = {};
  std::size_t i = 0;
  while (i + square_lanes <= count) {
    const std::size_t end = count - i < square_block ? count : i + square_block;
    Floats sums[vectors] = {};
    for (; i + square_lanes <= end; i += square_lanes) {
#pragma GCC unroll 8
      for (std::size_t v = 0; v < vectors; ++v) {
        const std::size_t at = i + v * float_lanes;
        const Floats value = load<Floats>(values + at);
        sums[v] += value * value;
        see(at, value);
      }
    }
#pragma GCC unroll 4
    for (std::size_t half = vectors / 2; half * float_lanes >= folded_lanes; half /= 2) {
#pragma GCC unroll 4
      for (std::size_t v = 0; v < half; ++v) sums[v] += sums[v + half];
    }
    float folded[folded_lanes];
    for (std::size_t v = 0; v < folded_lanes / float_lanes; ++v) store(folded + v * float_lanes, sums[v]);
    for (std::size_t v = 0; v < folded_lanes / double_lanes; ++v) {
      totals[v] += load_doubles(folded + v * double_lanes);
    }
  }
  double sum = sum_of_lanes(totals);
  for (; i < count; ++i) {
    const double value = values[i];
    sum += value * value;
    see_one(i);
  }
  return sum;
}

// This many values fit the L1 cache, in case their squares must be added up again in double.
constexpr std::size_t squares_at_once = 8192;

/// Whether a sum of squares in float neither overflowed nor lost much to underflow.
[[gnu::always_inline]] inline bool is_certain(double sum) { return sum > 1e-24 && sum <= 3.4e38; }

double sum_of_squares(const float* values, std::size_t count) noexcept {
  double sum = 0;
  for (std::size_t at = 0; at < count; at += squares_at_once) {
    const std::size_t here = count - at < squares_at_once ? count - at : squares_at_once;
    const double part = squares_in_float(
        values + at, here, [](std::size_t, Floats) {}, [](std::size_t) {});
    sum += is_certain(part) ? part : squares_in_double(values + at, here);
  }
  return sum;
}

double square_and_scale(float* values, std::size_t count, double factor) noexcept {
  return multiplying_by(factor, [=](const auto& multiply) {
    double sum = 0;
    for (std::size_t at = 0; at < count; at += squares_at_once) {
      const std::size_t here = count - at < squares_at_once ? count - at : squares_at_once;
      float* const part = values + at;
      const double squares = squares_in_float(
          part, here, [=](std::size_t i, Floats value) { store(part + i, multiply(value)); },
          [=](std::size_t i) { part[i] = multiply(part[i]); });
      sum += is_certain(squares) ? squares : squares_in_double(part, here) / (factor * factor);
    }
    return sum;
  });
}

void add_scaled(float* __restrict target, const float* __restrict source, std::size_t count,
                double factor) noexcept {
  std::size_t i = 0;
  for (; i + double_lanes <= count; i += double_lanes) {
    store_doubles(target + i, load_doubles(target + i) + load_doubles(source + i) * factor);
  }
  for (; i < count; ++i) target[i] = static_cast<float>(target[i] + source[i] * factor);
}

constexpr Kernels kernels = {scale_into, add_scaled, sum_of_squares, square_and_scale};

}  // namespace
}  // namespace ddl::elementwise
