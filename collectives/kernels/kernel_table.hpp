#pragma once

#include <cstddef>

namespace ddl::collectives {

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

/// By `DataType` and `ReduceOp`.
struct KernelTable {
  static constexpr std::size_t types = 7;
  static constexpr std::size_t ops = 5;
  Kernel kernels[types][ops];
};

// Each in a source of its own, which is compiled for that instruction set.
const KernelTable& baseline_kernels() noexcept;
const KernelTable& avx2_kernels() noexcept;
const KernelTable& avx512_kernels() noexcept;

}  // namespace ddl::collectives
