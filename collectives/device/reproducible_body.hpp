#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "collectives/device/kernels.hpp"
#include "collectives/kernels/exact_decoding.hpp"

/// The code of a thread of a kernel for reproducible reductions.
namespace ddl::collectives::device {

/// `at`: index of the element in its run.
template <ExactStep step, typename F>
DDL_HOST_DEVICE void take_step(const ExactPass& pass, std::uint64_t run, std::uint64_t at) {
  using Bits = typename F::Bits;
  using Key = typename F::Key;
  using Limb = std::conditional_t<step == ExactStep::encode_short || step == ExactStep::decode_short,
                                  std::int32_t, std::int64_t>;
  const std::uint64_t i = run * pass.pitch + at;
  auto* const scale = reinterpret_cast<typename F::Scale*>(pass.scales) + i;
  auto* const limbs = reinterpret_cast<Limb*>(pass.limbs) + i * F::limbs;
  Key* const key = reinterpret_cast<Key*>(pass.limbs) + i;
  const auto element = [&] { return Parts<F>::load(pass.input, run * pass.stride + at); };
  Bits* const result = reinterpret_cast<Bits*>(pass.output) + i;
  if constexpr (step == ExactStep::scales) {
    *scale = static_cast<typename F::Scale>(Parts<F>::exponent(element()));
  } else if constexpr (step == ExactStep::encode || step == ExactStep::encode_short) {
    if (*scale == F::special) {
      encode_special<F>(element(), limbs);
    } else {
      encode_element<F>(element(), *scale, pass.bits, limbs);
    }
  } else if constexpr (step == ExactStep::decode || step == ExactStep::decode_short) {
    *result = decode_sum<F>(*scale, limbs, pass.bits, pass.divisor);
  } else if constexpr (step == ExactStep::least_keys || step == ExactStep::greatest_keys) {
    *key = key_of<F, step == ExactStep::greatest_keys>(element());
  } else if constexpr (step == ExactStep::decode_least || step == ExactStep::decode_greatest) {
    *result = decode_key<F, step == ExactStep::decode_greatest>(*key);
  } else {
    *result = product_of<F>(pass.input, pass.stride, pass.ranks, i);
  }
}

/// The kernel for a step and a format; null if there is none.
template <typename Kernel, template <ExactStep, typename> typename Of, typename F, ExactStep step>
constexpr Kernel exact_kernel_of() {
  constexpr bool is_short = step == ExactStep::encode_short || step == ExactStep::decode_short;
  if constexpr (is_short && sizeof(typename F::Bits) != 2) {
    return nullptr;
  } else {
    return Of<step, F>::value;
  }
}

/// The kernels for a format, indexed by ExactStep.
template <typename Kernel, template <ExactStep, typename> typename Of, typename F, std::size_t... steps>
constexpr std::array<Kernel, exact_steps> exact_kernels_of(std::index_sequence<steps...>) {
  return {exact_kernel_of<Kernel, Of, F, static_cast<ExactStep>(steps)>()...};
}

/// Indexed by type: see `index_of_float`.
template <typename Kernel, template <ExactStep, typename> typename Of>
constexpr std::array<std::array<Kernel, exact_steps>, 4> exact_kernels_of_all() {
  constexpr auto all = std::make_index_sequence<exact_steps>();
  return {exact_kernels_of<Kernel, Of, F32Format>(all), exact_kernels_of<Kernel, Of, F64Format>(all),
          exact_kernels_of<Kernel, Of, F16Format>(all), exact_kernels_of<Kernel, Of, BF16Format>(all)};
}

inline std::size_t index_of_float(DataType type) {
  return static_cast<std::size_t>(type) - static_cast<std::size_t>(DataType::f32);
}
static_assert(static_cast<int>(DataType::f64) == static_cast<int>(DataType::f32) + 1 &&
              static_cast<int>(DataType::f16) == static_cast<int>(DataType::f32) + 2 &&
              static_cast<int>(DataType::bf16) == static_cast<int>(DataType::f32) + 3);

}  // namespace ddl::collectives::device
