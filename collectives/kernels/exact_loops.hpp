#pragma once

// Loops for the compiler to vectorise, compiled once per instruction set. Everything is in an unnamed
// namespace and calls no code from elsewhere: otherwise the linker could keep a copy that was compiled for
// another machine.

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

template <typename F>
constexpr ExactKernels exact_kernels() {
  ExactKernels all{scale<F>, encode<F, std::int64_t>, nullptr, keys<F, false>, keys<F, true>};
  if constexpr (sizeof(typename F::Bits) == 2) all.encode_short = encode<F, std::int32_t>;
  return all;
}

}  // namespace
}  // namespace ddl::collectives
