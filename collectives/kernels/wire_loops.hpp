#pragma once

// Included by source files that are compiled for one instruction set; see kernel_vectors.hpp.

#include "collectives/kernels/kernel_table.hpp"
#include "collectives/kernels/kernel_vectors.hpp"
#include "collectives/kernels/reduce.hpp"

namespace ddl::collectives {
namespace {

/// Numbers per loop iteration.
constexpr std::size_t eight = 8;

struct BrainWire {
  /// Rounds like `bfloat16`.
  [[gnu::always_inline]] static void narrow(const float* values, std::uint16_t* packed) {
    for (std::size_t i = 0; i < eight; ++i) {
      const auto wide = __builtin_bit_cast(std::uint32_t, values[i]);
      const std::uint32_t nan = (wide >> 16) | 0x40U;
      const std::uint32_t nearest = (wide + 0x7fffU + ((wide >> 16) & 1U)) >> 16;
      packed[i] = static_cast<std::uint16_t>((wide & 0x7fff'ffffU) > 0x7f80'0000U ? nan : nearest);
    }
  }
  [[gnu::always_inline]] static void widen(const std::uint16_t* packed, float* values) {
    for (std::size_t i = 0; i < eight; ++i) {
      values[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(packed[i]) << 16);
    }
  }
};

struct HalfWire {
#if defined(DDL_KERNELS_AVX512) || defined(DDL_KERNELS_AVX2)
  [[gnu::always_inline]] static void narrow(const float* values, std::uint16_t* packed) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(packed),
                     _mm256_cvtps_ph(_mm256_loadu_ps(values), _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static void widen(const std::uint16_t* packed, float* values) {
    _mm256_storeu_ps(values, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(packed))));
  }
#elif defined(DDL_KERNELS_NEON)
  static constexpr std::size_t four = eight / 2;

  [[gnu::always_inline]] static void narrow(const float* values, std::uint16_t* packed) {
    Half::put<false>(reinterpret_cast<std::byte*>(packed),
                     {load<Floats>(values), load<Floats>(values + four)});
  }
  [[gnu::always_inline]] static void widen(const std::uint16_t* packed, float* values) {
    const FloatPair pair = Half::get(reinterpret_cast<const std::byte*>(packed));
    store(values, pair.a);
    store(values + four, pair.b);
  }
#else
  // `Half` holds eight numbers, with even and odd ones apart.
  static_assert(width == eight * sizeof(std::uint16_t));

  [[gnu::always_inline]] static void narrow(const float* values, std::uint16_t* packed) {
    FloatPair pair{};
    for (std::size_t i = 0; i < eight; ++i) (i % 2 == 0 ? pair.a : pair.b)[i / 2] = values[i];
    Half::put<false>(reinterpret_cast<std::byte*>(packed), pair);
  }
  [[gnu::always_inline]] static void widen(const std::uint16_t* packed, float* values) {
    const FloatPair pair = Half::get(reinterpret_cast<const std::byte*>(packed));
    for (std::size_t i = 0; i < eight; ++i) values[i] = i % 2 == 0 ? pair.a[i / 2] : pair.b[i / 2];
  }
#endif
};

[[gnu::always_inline]] inline float finite_or_zero(float value) {
  const auto magnitude = __builtin_bit_cast(std::uint32_t, value) & 0x7fff'ffffU;
  return magnitude < 0x7f80'0000U ? value : 0.0F;
}

template <typename Type, bool keeps>
[[gnu::always_inline]] inline void round_eight(const Rounding& rounding, std::size_t at) {
  float wanted[eight];
  for (std::size_t i = 0; i < eight; ++i) {
    wanted[i] = keeps ? rounding.values[at + i] + rounding.kept[at + i] : rounding.values[at + i];
  }
  std::uint16_t packed[eight];
  float rounded[eight];
  Type::narrow(wanted, packed);
  Type::widen(packed, rounded);
  __builtin_memcpy(rounding.rounded + at, rounded, sizeof rounded);
  for (std::size_t i = 0; keeps && i < eight; ++i) {
    rounding.left[at + i] = finite_or_zero(wanted[i] - rounded[i]);
  }
}

template <typename Type, bool keeps>
void round_all(const Rounding& all, std::size_t count) {
  std::size_t i = 0;
  for (; i + eight <= count; i += eight) round_eight<Type, keeps>(all, i);
  if (i == count) return;
  const std::size_t rest = (count - i) * sizeof(float);
  float values[eight] = {};
  float kept[eight] = {};
  float left[eight];
  __builtin_memcpy(values, all.values + i, rest);
  if (keeps) __builtin_memcpy(kept, all.kept + i, rest);
  round_eight<Type, keeps>({values, values, kept, left}, 0);
  __builtin_memcpy(all.rounded + i, values, rest);
  if (keeps) __builtin_memcpy(all.left + i, left, rest);
}

template <typename Type>
struct WireLoops {
  static void round(const Rounding& rounding, std::size_t count) noexcept {
    if (rounding.kept == nullptr) return round_all<Type, false>(rounding, count);
    round_all<Type, true>(rounding, count);
  }

  static void narrow(const float* values, std::uint16_t* packed, std::size_t count) noexcept {
    std::size_t i = 0;
    for (; i + eight <= count; i += eight) Type::narrow(values + i, packed + i);
    float last[eight] = {};
    std::uint16_t last_packed[eight];
    __builtin_memcpy(last, values + i, (count - i) * sizeof *values);
    Type::narrow(last, last_packed);
    __builtin_memcpy(packed + i, last_packed, (count - i) * sizeof *packed);
  }

  static void widen(const std::uint16_t* packed, float* values, std::size_t count) noexcept {
    std::size_t i = 0;
    for (; i + eight <= count; i += eight) Type::widen(packed + i, values + i);
    std::uint16_t last_packed[eight] = {};
    float last[eight];
    __builtin_memcpy(last_packed, packed + i, (count - i) * sizeof *packed);
    Type::widen(last_packed, last);
    __builtin_memcpy(values + i, last, (count - i) * sizeof *values);
  }
};

template <typename Type>
constexpr WireKernels wire_kernels() {
  return {WireLoops<Type>::round, WireLoops<Type>::narrow, WireLoops<Type>::widen};
}

}  // namespace
}  // namespace ddl::collectives
