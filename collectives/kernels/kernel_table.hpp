#pragma once

#include <cstddef>
#include <cstdint>

namespace ddl::collectives {

enum class InstructionSet;
struct Rounding;

/// What a kernel works on; see `reduce`.
struct Operands {
  std::byte* const* targets;
  std::size_t target_count;
  const std::byte* const* inputs;
  std::size_t input_count;  ///< At least 1.
  std::size_t bytes;        ///< Of each operand: a multiple of the element's size.
  int divisor;              ///< Of kernels for `avg` alone: at least 2.
  /// Write past the caches. No target is an input, and all are an element's multiple from a multiple of 64,
  /// the same one.
  bool streaming;
};

using Kernel = void (*)(const Operands&) noexcept;

/// What kernels of `ExactForm` work on. Addresses are aligned as elements are.
struct ExactOperands {
  const std::byte* input;
  std::byte* scales;  ///< Written by `scale`, read by `encode`.
  std::byte* limbs;
  std::size_t count;
  int bits;  ///< An element of the greatest scale is below 2^bits in limbs.
};

using ExactKernel = void (*)(const ExactOperands&) noexcept;

/// Of one float type.
struct ExactKernels {
  ExactKernel scale;
  ExactKernel encode;        ///< To i64; f64 to two of them.
  ExactKernel encode_short;  ///< To i32; null but for 16-bit types.
  ExactKernel keys_for_min;  ///< To i32; f64 to i64.
  ExactKernel keys_for_max;
};

/// Of one type of 16 bits; see wire.hpp.
struct WireKernels {
  void (*round)(const Rounding& rounding, std::size_t count) noexcept;
  void (*narrow)(const float* values, std::uint16_t* packed, std::size_t count) noexcept;
  void (*widen)(const std::uint16_t* packed, float* values, std::size_t count) noexcept;
};

/// By `DataType` and `ReduceOp`.
struct KernelTable {
  static constexpr std::size_t types = 7;
  static constexpr std::size_t ops = 5;
  Kernel kernels[types][ops];
  ExactKernels exact[types];  ///< Null for integers.
  WireKernels wire[types];    ///< Null but for f16 and bf16.
};

// Each in a source of its own, which is compiled for that instruction set.
const KernelTable& baseline_kernels() noexcept;
const KernelTable& avx2_kernels() noexcept;
const KernelTable& avx512_kernels() noexcept;

/// Those of one of the sets that this build has; where it has only the baseline, that.
const KernelTable& kernels_of(InstructionSet set) noexcept;

}  // namespace ddl::collectives
