#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// Function multi-versioning resolves before the sanitizers' run-time is initialised.
#if defined(__x86_64__) && !defined(DDL_SANITIZED)
#define NMT_VECTORIZED __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define NMT_VECTORIZED
#endif
#define NMT_INLINE [[gnu::always_inline]] inline

namespace nmt::cpu {

// exp by 2^n * polynomial (Cephes' coefficients), about 1 ulp; the argument is clamped to the range
// whose results are normal numbers. Branch-free, so loops over it vectorise.
NMT_INLINE float exp_approx(float x) noexcept {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float shifted = x * 1.44269504088896341f + magic;
  const float n = shifted - magic;
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(magic);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * std::bit_cast<float>((exponent + 127) << 23);
}

NMT_INLINE float sigmoid(float x) noexcept { return 1.0f / (1.0f + exp_approx(-x)); }

NMT_INLINE float tanh_approx(float x) noexcept {
  const float e = exp_approx(-2.0f * std::fabs(x));
  const float t = (1.0f - e) / (1.0f + e);
  // Below 0.04 the difference 1 - e cancels; there x - x^3/3 + 2x^5/15 is exact to fp32.
  const float x2 = x * x;
  const float small = x * (1.0f - x2 * (1.0f / 3.0f - x2 * (2.0f / 15.0f)));
  return std::fabs(x) < 0.04f ? small : std::copysign(t, x);
}

}  // namespace nmt::cpu
