#pragma once

#include <cstddef>
#include <cstdint>

namespace ddl::collectives {

/// What kernels of `ExactForm` work on. Addresses are aligned as elements are.
struct ExactOperands {
  const std::byte* input;
  std::byte* scales;  ///< Written by `scale`, read by `encode`.
  std::byte* limbs;
  std::size_t count;
  int bits;  ///< An element of the greatest scale is below 2^bits in limbs.
};

using ExactKernel = void (*)(const ExactOperands&) noexcept;

/// Of each float type: f32, f64, f16, bf16.
struct ExactKernels {
  static constexpr std::size_t types = 4;
  ExactKernel scale[types];
  ExactKernel encode[types];        ///< To i64; f64 to two of them.
  ExactKernel encode_short[types];  ///< To i32; null but for 16-bit types.
  ExactKernel keys_for_min[types];  ///< To i32; f64 to i64.
  ExactKernel keys_for_max[types];
};

// Each in a source of its own, which is compiled for that instruction set.
const ExactKernels& baseline_exact_kernels() noexcept;
const ExactKernels& avx2_exact_kernels() noexcept;
const ExactKernels& avx512_exact_kernels() noexcept;

}  // namespace ddl::collectives
