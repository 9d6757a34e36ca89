#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collectives/kernels/host_device.hpp"

namespace ddl {
struct float16;
struct bfloat16;
}  // namespace ddl

namespace ddl::collectives {

/// The layout of a float type, and the integers that stand for it in order-independent reductions.
template <typename Float, typename Unsigned, typename Integer, int mantissa_bits, int exponent_bits>
struct FloatFormat {
  using Number = Float;
  using Bits = Unsigned;
  using Signed = Integer;                         ///< Holds the mantissa with its leading bit and a sign.
  using Key = Integer;                            ///< For `min` and `max`: in the order of the floats.
  static constexpr int mantissa = mantissa_bits;  ///< Without the leading bit.
  static constexpr int exponent = exponent_bits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int special = (1 << exponent_bits) - 1;  ///< The exponent field of infinity and NaN.
  using Scale = std::conditional_t<exponent_bits <= 8, std::uint8_t, std::int32_t>;
  static constexpr std::size_t limbs = sizeof(Bits) == 8 ? 2 : 1;
};

using F32Format = FloatFormat<float, std::uint32_t, std::int32_t, 23, 8>;
using F64Format = FloatFormat<double, std::uint64_t, std::int64_t, 52, 11>;
using F16Format = FloatFormat<float16, std::uint16_t, std::int32_t, 10, 5>;
using BF16Format = FloatFormat<bfloat16, std::uint16_t, std::int32_t, 7, 8>;

/// The key of NaN, which wins over all other keys.
template <typename Key>
struct ExactKey {
  static constexpr Key of_nan(bool greatest) noexcept {
    const Key last = static_cast<Key>(~(Key{1} << (sizeof(Key) * 8 - 1)));
    return greatest ? last : static_cast<Key>(~last);
  }
};

// Encoding for reproducible reductions (see ExactForm), for the host's vector loops and for devices, which
// must give the same bits. All steps are exact except one rounding to nearest even, by an addition; so it
// does not matter whether a compiler fuses a product and a sum. Everything is inlined and in an unnamed
// namespace, for the reason in exact_loops.hpp.

namespace {

template <typename F>
struct Parts {
  using Bits = typename F::Bits;
  using Signed = typename F::Signed;
  static constexpr Bits one = 1;
  static constexpr Bits infinity = static_cast<Bits>(((one << F::exponent) - 1) << F::mantissa);

  [[gnu::always_inline]] static DDL_HOST_DEVICE Bits load(const std::byte* input, std::size_t i) {
    Bits bits;
    __builtin_memcpy(&bits, input + i * sizeof(Bits), sizeof bits);
    return bits;
  }
  [[gnu::always_inline]] static DDL_HOST_DEVICE int exponent(Bits bits) {
    return static_cast<int>((bits >> F::mantissa) & ((one << F::exponent) - 1));
  }
  [[gnu::always_inline]] static DDL_HOST_DEVICE Bits magnitude(Bits bits) {
    return static_cast<Bits>(bits & ((one << (F::mantissa + F::exponent)) - 1));
  }
  [[gnu::always_inline]] static DDL_HOST_DEVICE bool is_negative(Bits bits) {
    return magnitude(bits) != bits;
  }
  /// The signed mantissa, in units of 2^(max(exponent, 1) - bias - mantissa).
  [[gnu::always_inline]] static DDL_HOST_DEVICE Signed integer(Bits bits) {
    const Bits fraction = static_cast<Bits>(bits & ((one << F::mantissa) - 1));
    const Bits whole = static_cast<Bits>(exponent(bits) != 0 ? fraction | (one << F::mantissa) : fraction);
    return is_negative(bits) ? -static_cast<Signed>(whole) : static_cast<Signed>(whole);
  }
};

[[gnu::always_inline]] DDL_HOST_DEVICE double power_of_two(int exponent) {
  return __builtin_bit_cast(double, static_cast<std::uint64_t>(1023 + exponent) << 52U);
}

/// Added to |x| <= 2^51, it gives a sum whose last bit is worth 1.
constexpr double to_integer = 6755399441055744.0;  // 1.5 * 2^52

/// The integer that a sum with `to_integer` holds.
[[gnu::always_inline]] DDL_HOST_DEVICE std::int64_t integer_of(double sum) {
  return __builtin_bit_cast(std::int64_t, sum) - __builtin_bit_cast(std::int64_t, to_integer);
}

/// An element's F::limbs limbs, if all ranks' elements are finite. An element of the maximum scale is below
/// 2^bits in limbs.
template <typename F, typename Limb>
[[gnu::always_inline]] DDL_HOST_DEVICE void encode_element(typename F::Bits element, int scale, int bits,
                                                           Limb* limbs) {
  using P = Parts<F>;
  const int exponent = P::exponent(element);
  const int shift = (exponent > 1 ? exponent : 1) - (scale > 1 ? scale : 1) + bits - F::mantissa - 1;
  if constexpr (F::limbs == 1) {
    const double value = static_cast<double>(P::integer(element)) * power_of_two(shift);
    limbs[0] = static_cast<Limb>(integer_of(value + to_integer));
  } else {
    // Values below half of the second limb's last bit become 0.
    const double value = static_cast<double>(P::integer(element)) * power_of_two(shift > -500 ? shift : -500);
    const double sum = value + to_integer;
    limbs[0] = integer_of(sum);
    limbs[1] = integer_of((value - (sum - to_integer)) * power_of_two(bits) + to_integer);
  }
}

/// Encodes an element if some rank's is infinite or NaN: flags instead of a number.
template <typename F, typename Limb>
[[gnu::always_inline]] DDL_HOST_DEVICE void encode_special(typename F::Bits element, Limb* limbs) {
  using P = Parts<F>;
  constexpr int half = static_cast<int>(sizeof(Limb)) * 4 - 1;
  for (std::size_t l = 0; l < F::limbs; ++l) limbs[l] = 0;
  if (P::magnitude(element) > P::infinity) {
    limbs[0] = (Limb{1} << half) | 1;
  } else if (P::magnitude(element) == P::infinity) {
    limbs[0] = P::is_negative(element) ? Limb{1} << half : Limb{1};
  }
}

template <typename F, bool greatest>
[[gnu::always_inline]] DDL_HOST_DEVICE typename F::Key key_of(typename F::Bits element) {
  using P = Parts<F>;
  using Key = typename F::Key;
  const Key size = static_cast<Key>(P::magnitude(element));
  const Key key = P::is_negative(element) ? ~size : size;  // so -0 is below 0
  return P::magnitude(element) > P::infinity ? ExactKey<Key>::of_nan(greatest) : key;
}

}  // namespace

}  // namespace ddl::collectives
