#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

/// Tensor cores for kernels that the host's compiler compiles. The first lane of a warp has its tiles; memory
/// must be aligned as the real ones demand.
namespace nvcuda::wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };

template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16);
  std::array<float, 256> values;
};

inline bool is_first_lane() { return threadIdx.x % emulated_cuda::warp_lanes == 0; }

template <typename T>
void check(const T* memory, unsigned stride) {
  if (reinterpret_cast<std::uintptr_t>(memory) % 32 != 0 || stride * sizeof(T) % 16 != 0) std::abort();
}

template <typename Fragment>
void fill_fragment(Fragment& to, float value) {
  if (is_first_lane()) to.values.fill(value);
}

template <typename Use, typename T, typename Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& to, const T* from, unsigned stride) {
  check(from, stride);
  if (!is_first_lane()) return;
  for (unsigned r = 0; r < 16; ++r) {
    for (unsigned c = 0; c < 16; ++c) {
      const bool by_rows = std::is_same_v<Layout, row_major>;
      to.values[r * 16 + c] = static_cast<float>(from[by_rows ? r * stride + c : c * stride + r]);
    }
  }
}

template <typename A, typename B, typename C>
void mma_sync(C& to, const A& a, const B& b, const C& c) {
  if (!is_first_lane()) return;
  std::array<float, 256> sums = c.values;
  for (unsigned i = 0; i < 16; ++i)
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned j = 0; j < 16; ++j) sums[i * 16 + j] += a.values[i * 16 + k] * b.values[k * 16 + j];
  to.values = sums;
}

template <typename C>
void store_matrix_sync(float* to, const C& from, unsigned stride, layout_t) {
  check(to, stride);
  if (!is_first_lane()) return;
  for (unsigned r = 0; r < 16; ++r)
    for (unsigned c = 0; c < 16; ++c) to[r * stride + c] = from.values[r * 16 + c];
}

}  // namespace nvcuda::wmma
