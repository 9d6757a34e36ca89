#include "collectives/kernels/wire.hpp"

#include "collectives/kernels/wire_table.hpp"

namespace ddl::collectives::wire {
namespace {

const Kernels::OfType& kernels_for(DataType type) noexcept {
  static const Kernels& kernels = kernels_of(native_instruction_set());
  return type == DataType::bf16 ? kernels.bf16 : kernels.f16;
}

}  // namespace

#if defined(DDL_X86_KERNELS)
// Eight numbers at a time are enough for what memory limits.
const Kernels& kernels_of(InstructionSet set) noexcept {
  return set == InstructionSet::baseline ? baseline_kernels() : avx2_kernels();
}
#else
const Kernels& kernels_of(InstructionSet) noexcept { return baseline_kernels(); }
#endif

void round(DataType type, const Rounding& rounding, std::size_t count) noexcept {
  kernels_for(type).round(rounding, count);
}

void narrow(DataType type, std::span<const float> values, std::byte* packed) noexcept {
  kernels_for(type).narrow(values.data(), reinterpret_cast<std::uint16_t*>(packed), values.size());
}

void widen(DataType type, const std::byte* packed, std::span<float> values) noexcept {
  kernels_for(type).widen(reinterpret_cast<const std::uint16_t*>(packed), values.data(), values.size());
}

}  // namespace ddl::collectives::wire
