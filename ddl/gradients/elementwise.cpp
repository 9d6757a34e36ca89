#include "ddl/gradients/elementwise.hpp"

#include "ddl/gradients/elementwise_kernels.hpp"

namespace ddl::elementwise {
namespace {

const Kernels& native_kernels() noexcept {
  static const Kernels& kernels = kernels_of(collectives::native_instruction_set());
  return kernels;
}

}  // namespace

const Kernels& kernels_of([[maybe_unused]] collectives::InstructionSet set) noexcept {
#if defined(DDL_X86_KERNELS)
  if (set >= collectives::InstructionSet::avx2) return avx2_kernels();
#endif
  return baseline_kernels();
}

void scale(std::span<float> values, double factor) noexcept {
  native_kernels().scale_into(values.data(), values.data(), values.size(), factor);
}

void scale_into(std::span<float> target, std::span<const float> source, double factor) noexcept {
  native_kernels().scale_into(target.data(), source.data(), target.size(), factor);
}

void add_scaled(std::span<float> target, std::span<const float> source, double factor) noexcept {
  native_kernels().add_scaled(target.data(), source.data(), target.size(), factor);
}

double sum_of_squares(std::span<const float> values) noexcept {
  return native_kernels().sum_of_squares(values.data(), values.size());
}

double square_and_scale(std::span<float> values, double factor) noexcept {
  return native_kernels().square_and_scale(values.data(), values.size(), factor);
}

}  // namespace ddl::elementwise
