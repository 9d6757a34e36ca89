#pragma once

// The loops, for the compiler to vectorise. Like those in collectives/kernels they are compiled once for each
// instruction set: everything here is in an unnamed namespace and calls nothing from elsewhere, so that no
// program runs what was compiled for another machine.

#include "collectives/kernels/exact_format.hpp"
#include "collectives/kernels/kernel_table.hpp"

namespace ddl::collectives {

namespace {

template <typename F>
void scale(const ExactOperands& o) noexcept {
  using Scale = typename F::Scale;
  auto* const scales = reinterpret_cast<Scale*>(o.scales);
  for (std::size_t i = 0; i < o.count; ++i) {
    scales[i] = static_cast<Scale>(Parts<F>::exponent(Parts<F>::load(o.input, i)));
  }
}

template <typename F, typename Limb, bool has_specials>
[[gnu::always_inline]] inline void encode_block(const ExactOperands& o, std::size_t begin, std::size_t end) {
  const auto* const scales = reinterpret_cast<const typename F::Scale*>(o.scales);
  auto* const limbs = reinterpret_cast<Limb*>(o.limbs);
  const int bits = o.bits;
  for (std::size_t i = begin; i < end; ++i) {
    const auto element = Parts<F>::load(o.input, i);
    const int scale = scales[i];
    if (has_specials && scale == F::special) {
      encode_special<F>(element, limbs + i * F::limbs);
    } else {
      encode_element<F>(element, scale, bits, limbs + i * F::limbs);
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
  auto* const limbs = reinterpret_cast<typename F::Key*>(o.limbs);
  for (std::size_t i = 0; i < o.count; ++i) limbs[i] = key_of<F, greatest>(Parts<F>::load(o.input, i));
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
