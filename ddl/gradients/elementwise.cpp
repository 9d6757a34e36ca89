#include "ddl/gradients/elementwise.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

#include "collectives/kernels/reduce.hpp"
#include "ddl/gradients/elementwise_kernels.hpp"

namespace ddl::elementwise {
namespace {

const Kernels& native_kernels() noexcept {
  static const Kernels& kernels = kernels_of(collectives::native_instruction_set());
  return kernels;
}

template <typename T>
std::span<T> of(Elements values) noexcept {
  return {static_cast<T*>(values.data()), values.size()};
}
template <typename T>
std::span<const T> of(ConstElements values) noexcept {
  return {static_cast<const T*>(values.data()), values.size()};
}

}  // namespace

const Kernels& kernels_of([[maybe_unused]] collectives::InstructionSet set) noexcept {
#if defined(DDL_X86_KERNELS)
  if (set >= collectives::InstructionSet::avx2) return avx2_kernels();
#endif
  return baseline_kernels();
}

bool scale_into(Elements target, ConstElements source, double factor) noexcept {
  bool all_finite = true;
  if (target.type() == DataType::f64) {
    const std::span<const double> from = of<double>(source);
    std::ranges::transform(from, of<double>(target).begin(), [=](double value) { return value * factor; });
  } else if (target.type() == DataType::f32 && source.type() == DataType::f32) {
    native_kernels().scale_into(of<float>(target).data(), of<float>(source).data(), target.size(), factor);
  } else if (target.type() == DataType::f32) {
    const std::span<float> wide = of<float>(target);
    collectives::widen(source.type(), static_cast<const std::byte*>(source.data()), wide);
    if (factor != 1) scale(target, factor);
  } else {
    const std::uint16_t exponent = target.type() == DataType::f16 ? 0x7c00 : 0x7f80;  // all ones: not finite
    in_blocks(source, [&](std::size_t at, std::span<float> block) {
      if (factor != 1) native_kernels().scale_into(block.data(), block.data(), block.size(), factor);
      const std::span<std::uint16_t> to = of<std::uint16_t>(target).subspan(at, block.size());
      collectives::narrow(target.type(), block, reinterpret_cast<std::byte*>(to.data()));
      std::uint16_t not_finite = 0;
      for (const std::uint16_t value : to) not_finite |= (value & exponent) == exponent ? 1 : 0;
      all_finite = all_finite && not_finite == 0;
    });
  }
  return all_finite;
}

void add_scaled(Elements target, ConstElements source, double factor) noexcept {
  if (target.type() == DataType::f64) {
    const std::span<double> to = of<double>(target);
    const std::span<const double> from = of<double>(source);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i] * factor;
    return;
  }
  const std::span<float> to = of<float>(target);
  if (source.type() == DataType::f32) {
    return native_kernels().add_scaled(to.data(), of<float>(source).data(), to.size(), factor);
  }
  in_blocks(source, [&](std::size_t at, std::span<float> block) {
    native_kernels().add_scaled(to.data() + at, block.data(), block.size(), factor);
  });
}

double sum_of_squares(ConstElements values) noexcept {
  if (values.type() == DataType::f32) {
    return native_kernels().sum_of_squares(of<float>(values).data(), values.size());
  }
  double sum = 0;
  if (values.type() == DataType::f64) {
    for (const double value : of<double>(values)) sum += value * value;
  } else {
    in_blocks(values, [&](std::size_t, std::span<const float> block) {
      sum += native_kernels().sum_of_squares(block.data(), block.size());
    });
  }
  return sum;
}

double square_and_scale(Elements values, double factor) noexcept {
  if (values.type() == DataType::f32) {
    return native_kernels().square_and_scale(of<float>(values).data(), values.size(), factor);
  }
  const double sum = sum_of_squares(values);
  scale(values, factor);
  return sum;
}

}  // namespace ddl::elementwise
