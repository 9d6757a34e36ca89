#pragma once

// Vectors of the instruction set that the including source file is compiled for. This header, and those that
// include it, put everything in an unnamed namespace and use no inline functions or templates of other
// headers: the linker keeps one copy of those, which could need a newer machine than the one it runs on.

#include <cstddef>
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ddl::collectives {
namespace {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define DDL_KERNELS_AVX512
constexpr std::size_t width = 64;
#elif defined(__AVX2__) && defined(__F16C__)
#define DDL_KERNELS_AVX2
constexpr std::size_t width = 32;
#else
#if defined(__aarch64__)
#define DDL_KERNELS_NEON
#endif
constexpr std::size_t width = 16;
#endif

template <typename T, std::size_t bytes>
struct VectorType {
  typedef T type __attribute__((vector_size(bytes)));
};
template <typename T>
using Vector = typename VectorType<T, width>::type;

template <typename V>
[[gnu::always_inline]] inline V load(const void* from) {
  V vector;
  __builtin_memcpy(&vector, from, sizeof(V));
  return vector;
}

template <typename V>
[[gnu::always_inline]] inline void store(void* to, V vector) {
  __builtin_memcpy(to, &vector, sizeof(V));
}

/// Stores past the caches. `to` must be aligned to the vector's size.
template <typename V>
[[gnu::always_inline]] inline void store_streaming(std::byte* to, V vector) {
#if defined(DDL_KERNELS_AVX512)
  if constexpr (sizeof(V) == 64)
    return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<__m512i>(vector));
#endif
#if defined(DDL_KERNELS_AVX512) || defined(DDL_KERNELS_AVX2)
  if constexpr (sizeof(V) == 32)
    return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(vector));
#endif
#if defined(__x86_64__)
  if constexpr (sizeof(V) == 16)
    return _mm_stream_si128(reinterpret_cast<__m128i*>(to), reinterpret_cast<__m128i>(vector));
#endif
  return store(to, vector);
}

/// Orders streamed stores before all later stores.
[[gnu::always_inline]] inline void finish_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

template <bool streaming, typename V>
[[gnu::always_inline]] inline void store_as(std::byte* to, V vector) {
  if constexpr (streaming) {
    store_streaming(to, vector);
  } else {
    store(to, vector);
  }
}

using Floats = Vector<float>;
using Words = Vector<std::uint32_t>;

/// Vectors per loop iteration.
constexpr std::size_t unrolled = 4;

/// `width` bytes of 16-bit floats, widened.
struct FloatPair {
  Floats a;
  Floats b;
};

/// `width` bytes of a type that is combined without conversion.
template <typename T>
struct Plain {
  using Number = T;
  using Value = Vector<T>;
  static constexpr std::size_t steps = unrolled;

  [[gnu::always_inline]] static Value get(const std::byte* from) { return load<Value>(from); }
  template <bool streaming>
  [[gnu::always_inline]] static void put(std::byte* to, Value value) {
    store_as<streaming>(to, value);
  }
};

/// Even elements are in `a` and odd ones in `b`, which takes only shifts.
struct BrainFloat {
  using Number = float;
  using Value = FloatPair;
  static constexpr std::size_t steps = unrolled / 2;

  [[gnu::always_inline]] static Value get(const std::byte* from) {
    const Words words = load<Words>(from);
    return {reinterpret_cast<Floats>(words << 16), reinterpret_cast<Floats>(words & 0xffff'0000U)};
  }
  template <bool streaming>
  [[gnu::always_inline]] static void put(std::byte* to, const Value& value) {
    store_as<streaming>(to, (rounded(value.a) >> 16) | (rounded(value.b) & 0xffff'0000U));
  }

 private:
  /// Rounds to nearest even in the upper half; the lower half is garbage. The lower half of a NaN is zero,
  /// because it comes from `get` or from the processor, so there is no carry and it remains a NaN.
  [[gnu::always_inline]] static Words rounded(Floats value) {
    const Words bits = reinterpret_cast<Words>(value);
    return bits + ((bits >> 16) & 1U) + 0x7fffU;
  }
};

#if defined(DDL_KERNELS_AVX512) || defined(DDL_KERNELS_AVX2) || defined(DDL_KERNELS_NEON)

/// The first half of the elements is in `a`, the second in `b`.
struct Half {
  using Number = float;
  using Value = FloatPair;
  static constexpr std::size_t steps = unrolled / 2;

  [[gnu::always_inline]] static Value get(const std::byte* from) {
    return {widened(from), widened(from + width / 2)};
  }
  template <bool streaming>
  [[gnu::always_inline]] static void put(std::byte* to, const Value& value) {
    store_as<streaming>(to, rounded(value.a));
    store_as<streaming>(to + width / 2, rounded(value.b));
  }

 private:
#if defined(DDL_KERNELS_AVX512)
  // GCC 12 warns about the undefined operand of the intrinsics without a mask.
  static constexpr __mmask16 all = 0xffff;

  [[gnu::always_inline]] static Floats widened(const std::byte* from) {
    return _mm512_maskz_cvtph_ps(all, load<__m256i>(from));
  }
  [[gnu::always_inline]] static __m256i rounded(Floats value) {
    return _mm512_maskz_cvtps_ph(all, value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
#elif defined(DDL_KERNELS_AVX2)
  [[gnu::always_inline]] static Floats widened(const std::byte* from) {
    return _mm256_cvtph_ps(load<__m128i>(from));
  }
  [[gnu::always_inline]] static __m128i rounded(Floats value) {
    return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
  }
#else
  [[gnu::always_inline]] static Floats widened(const std::byte* from) {
    return vcvt_f32_f16(load<float16x4_t>(from));
  }
  [[gnu::always_inline]] static float16x4_t rounded(Floats value) { return vcvt_f16_f32(value); }
#endif
};

#else

/// Gives the bits of the instructions above. Even elements are in `a`, odd ones in `b`.
struct Half {
  using Number = float;
  using Value = FloatPair;
  static constexpr std::size_t steps = 1;

  [[gnu::always_inline]] static Value get(const std::byte* from) {
    const Words words = load<Words>(from);
    return {widened(words & 0xffffU), widened(words >> 16)};
  }
  template <bool streaming>
  [[gnu::always_inline]] static void put(std::byte* to, const Value& value) {
    store_as<streaming>(to, rounded(value.a) | (rounded(value.b) << 16));
  }

 private:
  using Ints = Vector<std::int32_t>;

  [[gnu::always_inline]] static Floats widened(Words half) {
    const Words magnitude = half & 0x7fffU;
    const Ints compared = reinterpret_cast<Ints>(magnitude);  // SSE2 compares only signed words
    const Words normal = (magnitude << 13) + (112U << 23);
    const Words special =
        (magnitude << 13) | (compared > 0x7c00 ? Words{} + 0x7fc0'0000U : Words{} + 0x7f80'0000U);
    const Floats subnormal = __builtin_convertvector(compared, Floats) * 0x1p-24F;
    Words bits = compared < 0x400 ? reinterpret_cast<Words>(subnormal) : normal;
    bits = compared >= 0x7c00 ? special : bits;
    return reinterpret_cast<Floats>(bits | ((half & 0x8000U) << 16));
  }

  [[gnu::always_inline]] static Words rounded(Floats value) {
    const Words bits = reinterpret_cast<Words>(value);
    const Words magnitude = bits & 0x7fff'ffffU;
    const Ints compared = reinterpret_cast<Ints>(magnitude);
    const Words normal = (magnitude + ((magnitude >> 13) & 1U) + 0xfffU - (112U << 23)) >> 13;
    // Adding 0.5, whose last bit is worth 2^-24, rounds.
    const Words half = reinterpret_cast<Words>(Floats{} + 0.5F);
    const Words subnormal = reinterpret_cast<Words>(reinterpret_cast<Floats>(magnitude) + 0.5F) - half;
    const Words nan = ((magnitude >> 13) & 0x3ffU) | 0x7e00U;
    Words result = compared < (113 << 23) ? subnormal : normal;
    result = compared >= (143 << 23) ? Words{} + 0x7c00U : result;  // 65,536 and above
    result = compared > 0x7f80'0000 ? nan : result;
    return result | ((bits >> 16) & 0x8000U);
  }
};

#endif

}  // namespace
}  // namespace ddl::collectives
