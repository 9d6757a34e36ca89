#pragma once

// Decoding for reproducible reductions (see ExactForm), for the host and for devices, which must give the
// same bits. Each rounding is a single IEEE 754 operation, and none is a sum that a compiler could fuse with
// a product.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collectives/kernels/element.hpp"
#include "collectives/kernels/exact_format.hpp"
#include "ddl/float16.hpp"

namespace ddl::collectives {
namespace {

template <typename F>
DDL_HOST_DEVICE typename F::Bits nan_of() {
  return static_cast<typename F::Bits>(Parts<F>::infinity | (Parts<F>::one << (F::mantissa - 1)));
}

template <typename F>
DDL_HOST_DEVICE typename F::Bits with_sign(typename F::Bits magnitude, bool negative) {
  constexpr auto sign = static_cast<typename F::Bits>(Parts<F>::one << (F::exponent + F::mantissa));
  return negative ? static_cast<typename F::Bits>(magnitude | sign) : magnitude;
}

/// Rounds to the nearest number of the type; returns its bits.
template <typename F>
DDL_HOST_DEVICE typename F::Bits rounded(double value) {
  if (value != value) return nan_of<F>();
  if constexpr (std::is_same_v<F, F64Format>) {
    return __builtin_bit_cast(typename F::Bits, value);
  } else {
    return __builtin_bit_cast(typename F::Bits,
                              device::narrow<typename F::Number>(static_cast<float>(value)));
  }
}

/// The result of elements that include infinities or NaN: each half of the limb counts the infinities of one
/// sign, and a NaN counts in both.
template <typename F, typename Limb>
DDL_HOST_DEVICE typename F::Bits special_result(Limb limb) {
  constexpr int half = static_cast<int>(sizeof(Limb)) * 4 - 1;
  const bool positive = (limb & ((Limb{1} << half) - 1)) != 0;
  const bool negative = (limb >> half) != 0;
  return positive == negative ? nan_of<F>() : with_sign<F>(Parts<F>::infinity, negative);
}

/// `number` must not be 0.
DDL_HOST_DEVICE int leading_zeros(std::uint64_t number) {
#if defined(__CUDA_ARCH__)
  return __clzll(static_cast<long long>(number));
#else
  return __builtin_clzll(number);
#endif
}

/// upper * 2^bits + lower, rounded to the nearest double. The sum must be below 2^127, and `bits` from 1 to
/// 63.
DDL_HOST_DEVICE double joined(std::int64_t upper, std::int64_t lower, int bits) {
  // The sum in two words; the upper one has the sign.
  std::uint64_t low = static_cast<std::uint64_t>(upper) << bits;
  std::uint64_t high = static_cast<std::uint64_t>(upper >> (64 - bits));
  low += static_cast<std::uint64_t>(lower);
  high += static_cast<std::uint64_t>(lower >> 63) + (low < static_cast<std::uint64_t>(lower) ? 1 : 0);
  const bool is_negative = high >> 63 != 0;
  if (is_negative) {
    low = ~low + 1;
    high = ~high + (low == 0 ? 1 : 0);
  }
  double magnitude = 0;
  if (high == 0) {
    magnitude = static_cast<double>(low);
  } else {
    // Keeps the first 64 bits. The rest only matters as a sticky bit for rounding.
    const int shift = leading_zeros(high);
    const std::uint64_t first = high << shift | low >> (64 - shift);
    magnitude = static_cast<double>(first | (low << shift != 0 ? 1U : 0U)) * power_of_two(64 - shift);
  }
  return is_negative ? -magnitude : magnitude;
}

/// value * 2^exponent, rounded once. Valid for exponents down to -1200, and for 0 and values from 2^-400 to
/// 2^400.
DDL_HOST_DEVICE double scaled(double value, int exponent) {
  const int first = exponent / 2;
  return value * power_of_two(first) * power_of_two(exponent - first);
}

/// Decodes `limbs`, the sums over all ranks, and divides by `divisor`.
template <typename F, typename Limb>
DDL_HOST_DEVICE typename F::Bits decode_sum(int scale, const Limb* limbs, int bits, double divisor) {
  if (scale == F::special) return special_result<F>(limbs[0]);
  const int unit = (scale > 1 ? scale : 1) - F::bias + 1 - bits;  // exponent of its power of two
  if constexpr (F::limbs == 1) {
    return rounded<F>(static_cast<double>(limbs[0]) / divisor * power_of_two(unit));
  } else {
    return rounded<F>(scaled(joined(limbs[0], limbs[1], bits) / divisor, unit - bits));
  }
}

/// `key`: the minimum or maximum over all ranks.
template <typename F, bool greatest>
DDL_HOST_DEVICE typename F::Bits decode_key(typename F::Key key) {
  using Bits = typename F::Bits;
  if (key == ExactKey<typename F::Key>::of_nan(greatest)) return nan_of<F>();
  return key < 0 ? with_sign<F>(static_cast<Bits>(~key), true) : static_cast<Bits>(key);
}

/// The product of element `i` over all ranks; the elements of rank r begin r * `stride` elements after
/// `first`.
template <typename F>
DDL_HOST_DEVICE typename F::Bits product_of(const std::byte* first, std::size_t stride, std::size_t ranks,
                                            std::size_t i) {
  double product = 1;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto factor = __builtin_bit_cast(typename F::Number, Parts<F>::load(first, rank * stride + i));
    product *= static_cast<double>(device::widen(factor));
  }
  return rounded<F>(product);
}

}  // namespace
}  // namespace ddl::collectives
