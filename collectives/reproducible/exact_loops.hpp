#pragma once

// The loops, for the compiler to vectorise. Like those in collectives/kernels they are compiled once for each
// instruction set: everything here is in an unnamed namespace and calls nothing from elsewhere, so that no
// program runs what was compiled for another machine. All give the same bits: every step is exact, but for
// one rounding to nearest even, by addition.

#include "collectives/reproducible/exact_format.hpp"
#include "collectives/reproducible/exact_kernels.hpp"

namespace ddl::collectives {
namespace {

/// An element's parts.
template <typename F>
struct Parts {
  using Bits = typename F::Bits;
  using Signed = typename F::Signed;
  static constexpr Bits one = 1;

  [[gnu::always_inline]] static Bits load(const std::byte* input, std::size_t i) {
    Bits bits;
    __builtin_memcpy(&bits, input + i * sizeof(Bits), sizeof bits);
    return bits;
  }
  [[gnu::always_inline]] static int exponent(Bits bits) {
    return static_cast<int>((bits >> F::mantissa) & ((one << F::exponent) - 1));
  }
  [[gnu::always_inline]] static Bits magnitude(Bits bits) {
    return static_cast<Bits>(bits & ((one << (F::mantissa + F::exponent)) - 1));
  }
  [[gnu::always_inline]] static bool is_negative(Bits bits) { return magnitude(bits) != bits; }
  /// In units of 2^(max(exponent, 1) - bias - mantissa).
  [[gnu::always_inline]] static Signed integer(Bits bits) {
    const Bits fraction = static_cast<Bits>(bits & ((one << F::mantissa) - 1));
    const Bits whole = static_cast<Bits>(exponent(bits) != 0 ? fraction | (one << F::mantissa) : fraction);
    return is_negative(bits) ? -static_cast<Signed>(whole) : static_cast<Signed>(whole);
  }
};

[[gnu::always_inline]] inline double power_of_two(int exponent) {
  return __builtin_bit_cast(double, static_cast<std::uint64_t>(1023 + exponent) << 52U);
}

/// For |x| up to 2^51. The sum's last bit is worth 1.
constexpr double to_integer = 6755399441055744.0;  // 1.5 * 2^52

template <typename F>
void scale(const ExactOperands& o) noexcept {
  using Scale = typename F::Scale;
  auto* const scales = reinterpret_cast<Scale*>(o.scales);
  for (std::size_t i = 0; i < o.count; ++i) {
    scales[i] = static_cast<Scale>(Parts<F>::exponent(Parts<F>::load(o.input, i)));
  }
}

/// Of elements where some are infinite or NaN: flags in place of a number.
template <typename F, typename Limb>
[[gnu::always_inline]] inline Limb flags(typename F::Bits bits) {
  using P = Parts<F>;
  constexpr int half = static_cast<int>(sizeof(Limb)) * 4 - 1;
  constexpr auto infinity = static_cast<typename F::Bits>(((P::one << F::exponent) - 1) << F::mantissa);
  if (P::magnitude(bits) < infinity) return 0;
  if (P::magnitude(bits) > infinity) return (Limb{1} << half) | 1;
  return P::is_negative(bits) ? Limb{1} << half : Limb{1};
}

template <typename F, typename Limb, bool has_specials>
[[gnu::always_inline]] inline void encode_block(const ExactOperands& o, std::size_t begin, std::size_t end) {
  using P = Parts<F>;
  const auto* const scales = reinterpret_cast<const typename F::Scale*>(o.scales);
  auto* const limbs = reinterpret_cast<Limb*>(o.limbs);
  const int bits = o.bits;
  for (std::size_t i = begin; i < end; ++i) {
    const auto element = P::load(o.input, i);
    const int scale = scales[i];
    if constexpr (has_specials) {
      if (scale == F::special) {
        for (std::size_t l = 0; l < F::limbs; ++l) limbs[i * F::limbs + l] = 0;
        limbs[i * F::limbs] = flags<F, Limb>(element);
        continue;
      }
    }
    const int exponent = P::exponent(element);
    const int shift = (exponent > 1 ? exponent : 1) - (scale > 1 ? scale : 1) + bits - F::mantissa - 1;
    if constexpr (F::limbs == 1) {
      const double value = static_cast<double>(P::integer(element)) * power_of_two(shift);
      const double sum = value + to_integer;
      limbs[i] = static_cast<Limb>(__builtin_bit_cast(std::int64_t, sum) -
                                   __builtin_bit_cast(std::int64_t, to_integer));
    } else {
      // What is below half of the second limb's last bit is nothing.
      const double value =
          static_cast<double>(P::integer(element)) * power_of_two(shift > -500 ? shift : -500);
      const double sum = value + to_integer;
      const double rest = (value - (sum - to_integer)) * power_of_two(bits) + to_integer;
      limbs[2 * i] = __builtin_bit_cast(std::int64_t, sum) - __builtin_bit_cast(std::int64_t, to_integer);
      limbs[2 * i + 1] =
          __builtin_bit_cast(std::int64_t, rest) - __builtin_bit_cast(std::int64_t, to_integer);
    }
  }
}

template <typename F, typename Limb>
void encode(const ExactOperands& o) noexcept {
  constexpr std::size_t block = 512;
  const auto* const scales = reinterpret_cast<const typename F::Scale*>(o.scales);
  for (std::size_t begin = 0; begin < o.count; begin += block) {
    const std::size_t end = o.count - begin < block ? o.count : begin + block;
    int specials = 0;
    for (std::size_t i = begin; i < end; ++i) specials |= static_cast<int>(scales[i] == F::special);
    if (specials == 0) {
      encode_block<F, Limb, false>(o, begin, end);
    } else {
      encode_block<F, Limb, true>(o, begin, end);
    }
  }
}

template <typename F, bool greatest>
void keys(const ExactOperands& o) noexcept {
  using P = Parts<F>;
  using Key = typename F::Key;
  constexpr auto infinity = static_cast<typename F::Bits>(((P::one << F::exponent) - 1) << F::mantissa);
  auto* const limbs = reinterpret_cast<Key*>(o.limbs);
  for (std::size_t i = 0; i < o.count; ++i) {
    const auto bits = P::load(o.input, i);
    const Key size = static_cast<Key>(P::magnitude(bits));
    const Key key = P::is_negative(bits) ? ~size : size;  // -0 is below 0
    limbs[i] = P::magnitude(bits) > infinity ? ExactKey<Key>::of_nan(greatest) : key;
  }
}

constexpr ExactKernels exact_kernels = {
    {&scale<F32Format>, &scale<F64Format>, &scale<F16Format>, &scale<BF16Format>},
    {&encode<F32Format, std::int64_t>, &encode<F64Format, std::int64_t>, &encode<F16Format, std::int64_t>,
     &encode<BF16Format, std::int64_t>},
    {nullptr, nullptr, &encode<F16Format, std::int32_t>, &encode<BF16Format, std::int32_t>},
    {&keys<F32Format, false>, &keys<F64Format, false>, &keys<F16Format, false>, &keys<BF16Format, false>},
    {&keys<F32Format, true>, &keys<F64Format, true>, &keys<F16Format, true>, &keys<BF16Format, true>}};

}  // namespace
}  // namespace ddl::collectives
