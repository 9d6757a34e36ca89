#include "ddl/gradients/elementwise.hpp"

#include "ddl/gradients/elementwise_kernels.hpp"

namespace ddl::elementwise {
namespace {

const Kernels& native_kernels() noexcept {
  static const Kernels& kernels = kernels_of(collectives::native_instruction_set());
  return kernels;
}

}  // namespace

#if defined(DDL_X86_KERNELS)
const Kernels& kernels_of(collectives::InstructionSet set) noexcept {
  return set == collectives::InstructionSet::baseline ? baseline_kernels() : avx2_kernels();
}
#else
const Kernels& kernels_of(collectives::InstructionSet) noexcept { return baseline_kernels(); }
#endif

void scale(std::span<float> values, double factor) noexcept {
  native_kernels().scale(values.data(), values.size(), factor);
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
