#pragma once

#include <cstddef>
#include <cstdint>

namespace ddl::collectives {

enum class InstructionSet;
struct Rounding;

/// The arguments of a kernel; see `reduce`.
struct Operands {
  std::byte* const* targets;
  std::size_t target_count;
  const std::byte* const* inputs;
  std::size_t input_count;  ///< At least 1.
  std::size_t bytes;        ///< Of each operand; a multiple of the element's size.
  int divisor;              ///< Used by `avg` kernels only: at least 2.
  /// Write past the caches. No target may be an input, and all targets must have the same offset, a multiple
  /// of the element's size, from a multiple of 64.
  bool streaming;
};

using Kernel = void (*)(const Operands&) noexcept;

/// The arguments of kernels of `ExactForm`. Addresses are aligned to the element's size.
struct ExactOperands {
  const std::byte* input;
  std::byte* scales;  ///< Written by `scale`, read by `encode`.
  std::byte* limbs;
  std::size_t count;
  int bits;  ///< An element of the maximum scale is below 2^bits in limbs.
};

using ExactKernel = void (*)(const ExactOperands&) noexcept;

/// For one float type.
struct ExactKernels {
  ExactKernel scale;
  ExactKernel encode;        ///< To i64; for f64, to two of them.
  ExactKernel encode_short;  ///< To i32; null except for 16-bit types.
  ExactKernel keys_for_min;  ///< To i32; for f64, to i64.
  ExactKernel keys_for_max;
};

/// For one 16-bit type; see wire.hpp.
struct WireKernels {
  void (*round)(const Rounding& rounding, std::size_t count) noexcept;
  void (*narrow)(const float* values, std::uint16_t* packed, std::size_t count) noexcept;
  void (*widen)(const std::uint16_t* packed, float* values, std::size_t count) noexcept;
};

/// Indexed by `DataType` and `ReduceOp`.
struct KernelTable {
  static constexpr std::size_t types = 7;
  static constexpr std::size_t ops = 5;
  Kernel kernels[types][ops];
  ExactKernels exact[types];  ///< Null for integers.
  WireKernels wire[types];    ///< Null except for f16 and bf16.
  // At least 64 bytes, between buffers that do not overlap.
  void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
  void (*copy_streaming)(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
};

// Each is in a source file that is compiled for that instruction set.
const KernelTable& baseline_kernels() noexcept;
const KernelTable& avx2_kernels() noexcept;
const KernelTable& avx512_kernels() noexcept;

/// The kernels for `set`, or the baseline if this build has no other.
const KernelTable& kernels_of(InstructionSet set) noexcept;

}  // namespace ddl::collectives
