#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "collectives/kernels/host_device.hpp"
#include "ddl/float16.hpp"
#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

/// Elements as device kernels reduce them. Gives the same bits as `collectives::reduce`, except for NaN
/// payloads.
namespace ddl::collectives::device {

/// The type of partial results: 16-bit floats are combined in f32 and rounded once.
template <typename T>
using WideOf = std::conditional_t<std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>, float, T>;

template <typename T>
DDL_HOST_DEVICE WideOf<T> widen(T value) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float16>) return __half2float(__ushort_as_half(value.bits));
  if constexpr (std::is_same_v<T, bfloat16>) return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
#endif
  return static_cast<WideOf<T>>(value);
}

template <typename T>
DDL_HOST_DEVICE T narrow(WideOf<T> value) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float16>) {
    T narrowed;
    narrowed.bits = __half_as_ushort(__float2half_rn(value));
    return narrowed;
  }
  if constexpr (std::is_same_v<T, bfloat16>) {
    T narrowed;
    narrowed.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    return narrowed;
  }
#endif
  return static_cast<T>(value);
}

/// The type to compute in: integers wrap around.
template <typename T>
using Wrapping = std::conditional_t<!std::is_integral_v<T>, T,
                                    std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>>;

/// The highest or lowest value, infinity included.
template <typename T>
DDL_HOST_DEVICE constexpr T extreme(bool highest) {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity) return highest ? Limits::infinity() : -Limits::infinity();
  return highest ? Limits::max() : Limits::lowest();
}

// `identity` combined with any value is that value. `finished` turns the combined value into the result.
struct Sum {
  template <typename T>
  static DDL_HOST_DEVICE constexpr T identity() {
    if constexpr (std::is_floating_point_v<T>) return T{-0.0};  // 0 would turn -0 into 0
    return T{};
  }
  template <typename T>
  static DDL_HOST_DEVICE T apply(T x, T y) {
    using U = Wrapping<T>;
    return static_cast<T>(static_cast<U>(x) + static_cast<U>(y));
  }
  /// A `divisor` above 1 makes it an average. Integers truncate towards zero.
  template <typename T>
  static DDL_HOST_DEVICE T finished(T sum, int divisor) {
    if (divisor <= 1) return sum;
    if constexpr (std::is_same_v<T, std::uint8_t>) {
      return static_cast<T>(static_cast<unsigned>(sum) / static_cast<unsigned>(divisor));
    } else {
      return sum / static_cast<T>(divisor);
    }
  }
};
struct Unchanged {
  template <typename T>
  static DDL_HOST_DEVICE T finished(T result, int) {
    return result;
  }
};
struct Product : Unchanged {
  template <typename T>
  static DDL_HOST_DEVICE constexpr T identity() {
    return T{1};
  }
  template <typename T>
  static DDL_HOST_DEVICE T apply(T x, T y) {
    using U = Wrapping<T>;
    return static_cast<T>(static_cast<U>(x) * static_cast<U>(y));
  }
};
// The comparison x != x selects x if it is NaN; a NaN y is selected because the other comparison fails.
template <bool greatest>
struct Extremum : Unchanged {
  template <typename T>
  static DDL_HOST_DEVICE constexpr T identity() {
    return extreme<T>(!greatest);
  }
  template <typename T>
  static DDL_HOST_DEVICE T apply(T x, T y) {
    return (greatest ? x > y : x < y) || x != x ? x : y;
  }
};
using Minimum = Extremum<false>;
using Maximum = Extremum<true>;

}  // namespace ddl::collectives::device
