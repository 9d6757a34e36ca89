#pragma once

// The loops of elementwise.hpp, compiled once for each instruction set; the remark in kernel_vectors.hpp
// holds here too. All give the same bits: sums have the same lanes, and nothing is fused.

#include "collectives/kernels/kernel_vectors.hpp"
#include "ddl/gradients/elementwise_kernels.hpp"
#include "ddl/gradients/scaling_loops.hpp"
#if !defined(__F16C__)
#include "ddl/float16.hpp"
#endif

namespace ddl::elementwise {
namespace {

void add_scaled(float* __restrict target, const float* __restrict source, std::size_t count,
                double factor) noexcept {
  std::size_t i = 0;
  for (; i + double_lanes <= count; i += double_lanes) {
    store_doubles(target + i, load_doubles(target + i) + load_doubles(source + i) * factor);
  }
  for (; i < count; ++i) target[i] = static_cast<float>(target[i] + source[i] * factor);
}

[[gnu::always_inline]] inline float finite_or_zero(float value) {
  const auto magnitude = __builtin_bit_cast(std::uint32_t, value) & 0x7fff'ffffU;
  return magnitude < 0x7f80'0000U ? value : 0.0f;
}

/// As `bfloat16` converts.
[[gnu::always_inline]] inline std::uint32_t bf16_of(float value) {
  const auto wide = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t nan = (wide >> 16) | 0x40U;
  const std::uint32_t nearest = (wide + 0x7fffU + ((wide >> 16) & 1U)) >> 16;
  return (wide & 0x7fff'ffffU) > 0x7f80'0000U ? nan : nearest;
}

void encode_bf16(const Encoding& encoding, std::size_t count) noexcept {
  const float* __restrict values = encoding.values;
  const float* __restrict residual = encoding.residual;
  std::uint16_t* __restrict wire = encoding.wire;
  float* __restrict left = encoding.left;
  for (std::size_t i = 0; i < count; ++i) {
    const float wanted = values[i] + residual[i];
    const std::uint32_t sent = bf16_of(wanted);
    wire[i] = static_cast<std::uint16_t>(sent);
    left[i] = finite_or_zero(wanted - __builtin_bit_cast(float, sent << 16));
  }
}

void decode_bf16(const std::uint16_t* __restrict wire, float* __restrict values, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(wire[i]) << 16);
  }
}

#if defined(__F16C__)

constexpr std::size_t eight = 8;

[[gnu::always_inline]] inline void encode_eight_f16(const float* values, const float* residual,
                                                    std::uint16_t* wire, float* left) {
  const __m256 wanted = _mm256_add_ps(_mm256_loadu_ps(values), _mm256_loadu_ps(residual));
  const __m128i sent = _mm256_cvtps_ph(wanted, _MM_FROUND_TO_NEAREST_INT);
  const __m256 rest = _mm256_sub_ps(wanted, _mm256_cvtph_ps(sent));
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), rest);
  const __m256 is_finite = _mm256_cmp_ps(magnitude, _mm256_set1_ps(__builtin_huge_valf()), _CMP_LT_OQ);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(wire), sent);
  _mm256_storeu_ps(left, _mm256_and_ps(rest, is_finite));
}

void encode_f16(const Encoding& encoding, std::size_t count) noexcept {
  const auto [values, residual, wire, left] = encoding;
  std::size_t i = 0;
  for (; i + eight <= count; i += eight) encode_eight_f16(values + i, residual + i, wire + i, left + i);
  if (i == count) return;
  float last_values[eight] = {};
  float last_residual[eight] = {};
  std::uint16_t last_wire[eight];
  float last_left[eight];
  __builtin_memcpy(last_values, values + i, (count - i) * sizeof(float));
  __builtin_memcpy(last_residual, residual + i, (count - i) * sizeof(float));
  encode_eight_f16(last_values, last_residual, last_wire, last_left);
  __builtin_memcpy(wire + i, last_wire, (count - i) * sizeof(std::uint16_t));
  __builtin_memcpy(left + i, last_left, (count - i) * sizeof(float));
}

void decode_f16(const std::uint16_t* wire, float* values, std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + eight <= count; i += eight) {
    const __m128i sent = _mm_loadu_si128(reinterpret_cast<const __m128i*>(wire + i));
    _mm256_storeu_ps(values + i, _mm256_cvtph_ps(sent));
  }
  for (; i < count; ++i) values[i] = _cvtsh_ss(wire[i]);
}

#else

void encode_f16(const Encoding& encoding, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float wanted = encoding.values[i] + encoding.residual[i];
    const float16 sent(wanted);
    encoding.wire[i] = sent.bits;
    encoding.left[i] = finite_or_zero(wanted - static_cast<float>(sent));
  }
}

void decode_f16(const std::uint16_t* wire, float* values, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(float16::from_bits(wire[i]));
}

#endif

constexpr Kernels kernels = {scale,       scale_into, add_scaled,  sum_of_squares, square_and_scale,
                             encode_bf16, encode_f16, decode_bf16, decode_f16};

}  // namespace
}  // namespace ddl::elementwise
