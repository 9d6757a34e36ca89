#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/kernels/wire.hpp"

namespace ddl::collectives::wire {

/// The functions of wire.hpp, for one instruction set.
struct Kernels {
  struct OfType {
    void (*round)(const Rounding& rounding, std::size_t count) noexcept;
    void (*narrow)(const float* values, std::uint16_t* packed, std::size_t count) noexcept;
    void (*widen)(const std::uint16_t* packed, float* values, std::size_t count) noexcept;
  };
  OfType f16;
  OfType bf16;
};

// Each in a source of its own, which is compiled for that instruction set.
const Kernels& baseline_kernels() noexcept;
const Kernels& avx2_kernels() noexcept;

}  // namespace ddl::collectives::wire
