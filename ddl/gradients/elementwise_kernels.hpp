#pragma once

#include <cstddef>

namespace ddl::elementwise {

/// The f32 functions of elementwise.hpp for one instruction set. All sets give the same bits.
struct Kernels {
  /// `target` may be `source`.
  void (*scale_into)(float* target, const float* source, std::size_t count, double factor) noexcept;
  void (*add_scaled)(float* target, const float* source, std::size_t count, double factor) noexcept;
  double (*sum_of_squares)(const float* values, std::size_t count) noexcept;
  double (*square_and_scale)(float* values, std::size_t count, double factor) noexcept;
};

// Each is in its own source file, which is compiled for that instruction set. There is none for AVX-512:
// gradients come in short bursts, and on a processor that has not used 512-bit vectors for 2 ms, 63,000
// values took 54 us with them and 24 us with AVX2; twice as many in a row took 31 and 34 us.
const Kernels& baseline_kernels() noexcept;
const Kernels& avx2_kernels() noexcept;

}  // namespace ddl::elementwise
