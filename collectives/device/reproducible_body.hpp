#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collectives/device/kernels.hpp"
#include "collectives/kernels/exact_decoding.hpp"

/// What a thread of a kernel of reproducible reductions does.
namespace ddl::collectives::device {

/// `at`: an element of a run.
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

/// All kernels of a kind, `Of<step, F>::value`: by ExactStep, null where there is none.
template <typename Kernel, template <ExactStep, typename> typename Of, typename F>
constexpr std::array<Kernel, exact_steps> exact_kernels_of() {
  Kernel encode_short = nullptr;
  Kernel decode_short = nullptr;
  if constexpr (sizeof(typename F::Bits) == 2) {
    encode_short = Of<ExactStep::encode_short, F>::value;
    decode_short = Of<ExactStep::decode_short, F>::value;
  }
  return {Of<ExactStep::scales, F>::value,
          Of<ExactStep::encode, F>::value,
          encode_short,
          Of<ExactStep::decode, F>::value,
          decode_short,
          Of<ExactStep::least_keys, F>::value,
          Of<ExactStep::greatest_keys, F>::value,
          Of<ExactStep::decode_least, F>::value,
          Of<ExactStep::decode_greatest, F>::value,
          Of<ExactStep::multiply, F>::value};
}

/// By type: `index_of_float`.
template <typename Kernel, template <ExactStep, typename> typename Of>
constexpr std::array<std::array<Kernel, exact_steps>, 4> exact_kernels_of_all() {
  return {exact_kernels_of<Kernel, Of, F32Format>(), exact_kernels_of<Kernel, Of, F64Format>(),
          exact_kernels_of<Kernel, Of, F16Format>(), exact_kernels_of<Kernel, Of, BF16Format>()};
}

inline std::size_t index_of_float(DataType type) {
  return static_cast<std::size_t>(type) - static_cast<std::size_t>(DataType::f32);
}
static_assert(static_cast<int>(DataType::f64) == static_cast<int>(DataType::f32) + 1 &&
              static_cast<int>(DataType::f16) == static_cast<int>(DataType::f32) + 2 &&
              static_cast<int>(DataType::bf16) == static_cast<int>(DataType::f32) + 3);

}  // namespace ddl::collectives::device
