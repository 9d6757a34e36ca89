#include "collectives/kernels/wire.hpp"

#include <cstdint>

#include "collectives/kernels/kernel_table.hpp"
#include "collectives/kernels/reduce.hpp"

namespace ddl::collectives {
namespace {

const WireKernels& kernels_for(DataType type) noexcept {
  return kernels_of(native_instruction_set()).wire[static_cast<std::size_t>(type)];
}

}  // namespace

void round_to(DataType type, const Rounding& rounding, std::size_t count) noexcept {
  kernels_for(type).round(rounding, count);
}

void narrow(DataType type, std::span<const float> values, std::byte* packed) noexcept {
  kernels_for(type).narrow(values.data(), reinterpret_cast<std::uint16_t*>(packed), values.size());
}

void widen(DataType type, const std::byte* packed, std::span<float> values) noexcept {
  kernels_for(type).widen(reinterpret_cast<const std::uint16_t*>(packed), values.data(), values.size());
}

}  // namespace ddl::collectives
