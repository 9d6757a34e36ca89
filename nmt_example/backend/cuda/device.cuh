#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "nmt_example/backend/tensor.hpp"

/// Shared by several kernels. Blocks are one-dimensional and consist of whole warps.
namespace nmt::cuda {

using Index = std::int64_t;

__device__ inline float wide(float x) { return x; }
__device__ inline float wide(__half x) { return __half2float(x); }
__device__ inline float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void narrow(float from, float& to) { to = from; }
__device__ inline void narrow(float from, __half& to) { to = __float2half(from); }
__device__ inline void narrow(float from, __nv_bfloat16& to) { to = __float2bfloat16(from); }

template <typename T, int n>
struct alignas(std::min<std::size_t>(16, n * sizeof(T))) Pack {
  T values[n];
  __device__ T& operator[](int k) { return values[k]; }
  __device__ const T& operator[](int k) const { return values[k]; }
  __device__ void operator+=(const Pack& other) {
    for (int k = 0; k < n; ++k) values[k] += other[k];
  }
};

/// Writes a pack of numbers, narrowed to T.
template <typename T, int n>
__device__ void store_pack(T* to, const Pack<float, n>& values) {
  Pack<T, n> pack;
  for (int k = 0; k < n; ++k) narrow(values[k], pack[k]);
  *reinterpret_cast<Pack<T, n>*>(to) = pack;
}

/// A matrix of fp32, fp16 or bf16 in device code, which computes in fp32. For kernels that have more to do
/// than to move elements: a load waits for the one before it, because its type is known at run time alone.
struct View {
  void* data;
  Index rows, cols, stride;
  ddl::DataType type;

  View() = default;
  View(const Tensor& x) : data(x.data), rows(x.rows), cols(x.cols), stride(x.stride), type(x.type) {}
  __device__ float operator()(Index r, Index c) const {
    const Index place = r * stride + c;
    if (type == ddl::DataType::f32) return static_cast<const float*>(data)[place];
    return type == ddl::DataType::bf16 ? wide(static_cast<const __nv_bfloat16*>(data)[place])
                                       : wide(static_cast<const __half*>(data)[place]);
  }
  __device__ void set(Index r, Index c, float value) const {
    const Index place = r * stride + c;
    if (type == ddl::DataType::f32) {
      static_cast<float*>(data)[place] = value;
    } else if (type == ddl::DataType::bf16) {
      narrow(value, static_cast<__nv_bfloat16*>(data)[place]);
    } else {
      narrow(value, static_cast<__half*>(data)[place]);
    }
  }
  template <int n>
  __device__ void store(Index r, Index c, const Pack<float, n>& values) const {
    const Index place = r * stride + c;
    if (type == ddl::DataType::f32) return store_pack(static_cast<float*>(data) + place, values);
    type == ddl::DataType::bf16 ? store_pack(static_cast<__nv_bfloat16*>(data) + place, values)
                                : store_pack(static_cast<__half*>(data) + place, values);
  }
  /// A row of fp32.
  __device__ float* row(Index r) const { return static_cast<float*>(data) + r * stride; }
};

/// So many columns that a thread works on together.
template <int n>
using Width = std::integral_constant<int, n>;

/// A matrix of T in device code, which computes in fp32 and moves several elements at once. These are aligned
/// in matrices that `moves_packs`.
template <typename T>
struct Matrix {
  T* data;
  Index stride;

  Matrix(const Tensor& x) : data(x.as<T>()), stride(x.stride) {}
  __device__ float operator()(Index r, Index c) const { return wide(data[r * stride + c]); }
  __device__ void set(Index r, Index c, float value) const { narrow(value, data[r * stride + c]); }
  template <int n>
  __device__ Pack<float, n> load(Index r, Index c, Width<n>) const {
    const auto pack = *reinterpret_cast<const Pack<T, n>*>(data + r * stride + c);
    Pack<float, n> values;
    for (int k = 0; k < n; ++k) values[k] = wide(pack[k]);
    return values;
  }
  template <int n>
  __device__ void store(Index r, Index c, const Pack<float, n>& values) const {
    store_pack(data + r * stride + c, values);
  }
};

/// How many columns make packs of 16 bytes, and more of wider types.
template <typename... T>
inline constexpr int pack_width = static_cast<int>(16 / std::min({sizeof(T)...}));

/// Whether rows begin where packs may begin. Missing matrices do not matter.
template <typename... Matrices>
bool moves_packs(const Matrices&... x) {
  const auto is_aligned = [](const Tensor& of) {
    const std::size_t pitch = static_cast<std::size_t>(of.stride) * ddl::size_of(of.type);
    return reinterpret_cast<std::uintptr_t>(of.data) % 16 == 0 && (of.rows <= 1 || pitch % 16 == 0);
  };
  return (is_aligned(x) && ...);
}

/// Calls f(column, Width) for a thread's `width` columns, of those that `threads` threads have from `begin`
/// on: for a pack, or, without packs, one by one, so that neighbouring threads have neighbouring columns.
template <int width, typename F>
__device__ void for_pack(bool packs, Index begin, Index thread, Index threads, Index cols, const F& f) {
  const Index first = begin + thread * (packs ? width : 1), step = packs ? 1 : threads;
  if (packs && first + width <= cols) return f(first, Width<width>());
  for (Index c = first, k = 0; k < width && c < cols; c += step, ++k) f(c, Width<1>());
}

/// Calls f(column, Width) for all columns, at which the block's threads take turns.
template <int width, typename F>
__device__ void for_columns(bool packs, Index cols, const F& f) {
  for (Index begin = 0; begin < cols; begin += Index{blockDim.x} * width)
    for_pack<width>(packs, begin, threadIdx.x, blockDim.x, cols, f);
}

/// Calls f with a value of the C++ type of a matrix's elements.
template <typename F>
void with_narrow_type(ddl::DataType type, const F& f) {
  type == ddl::DataType::bf16 ? f(__nv_bfloat16()) : f(__half());
}
template <typename F>
void with_type(ddl::DataType type, const F& f) {
  type == ddl::DataType::f32 ? f(float()) : with_narrow_type(type, f);
}
/// The same for two types, of which one is fp32 if they differ.
template <typename F>
void with_types(ddl::DataType first, ddl::DataType second, const F& f) {
  with_type(first, [&]<typename A>(A a) {
    if (first == second) return f(a, a);
    if constexpr (std::is_same_v<A, float>) {
      with_type(second, [&](auto b) { f(a, b); });
    } else {
      f(a, float());
    }
  });
}

inline constexpr unsigned block_threads = 256;

/// Whole warps with a thread for each of `items`, or `most` threads if that is less.
inline unsigned threads_for(Index items, unsigned most = block_threads) {
  return static_cast<unsigned>(std::min<Index>((items + 31) / 32 * 32, most));
}

/// Launches the kernel, whose parameters are made of the arguments. Errors are left for cudaGetLastError.
template <typename... Parameters, typename... Arguments>
void launch_kernel(cudaStream_t stream, void (*kernel)(Parameters...), dim3 blocks, unsigned threads,
                   Arguments&&... arguments) {
  cudaLaunchConfig_t configuration{};
  configuration.gridDim = blocks;
  configuration.blockDim = threads;
  configuration.stream = stream;
  cudaLaunchKernelEx(&configuration, kernel, std::forward<Arguments>(arguments)...);
}

template <typename F>
__global__ void for_each_kernel(Index rows, Index cols, F f) {
  for (Index r = blockIdx.y; r < rows; r += gridDim.y)
    for (Index c = Index{blockIdx.x} * blockDim.x + threadIdx.x; c < cols; c += Index{gridDim.x} * blockDim.x)
      f(r, c);
}

/// Calls f(row, column) for every pair, each in a thread of its own.
template <typename F>
void for_each(cudaStream_t stream, Index rows, Index cols, const F& f) {
  if (rows <= 0 || cols <= 0) return;
  const unsigned threads = threads_for(cols);
  const Index across = std::min<Index>((cols + threads - 1) / threads, 1 << 30);
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(std::min<Index>(rows, 65535)));
  launch_kernel(stream, for_each_kernel<F>, grid, threads, rows, cols, f);
}

template <int width, typename F>
__global__ void for_each_pack_kernel(Index rows, Index cols, bool packs, F f) {
  const Index block = Index{blockDim.x} * width;
  for (Index r = blockIdx.y; r < rows; r += gridDim.y)
    for (Index begin = blockIdx.x * block; begin < cols; begin += gridDim.x * block)
      for_pack<width>(packs, begin, threadIdx.x, blockDim.x, cols, [&](Index c, auto n) { f(r, c, n); });
}

/// Calls f(row, column, Width) for the columns of all rows, in packs if `packs` says so.
template <int width, typename F>
void for_each_pack(cudaStream_t stream, Index rows, Index cols, bool packs, const F& f) {
  if (rows <= 0 || cols <= 0) return;
  const Index of_row = (cols + width - 1) / width;
  const unsigned threads = threads_for(of_row);
  const Index across = std::min<Index>((of_row + threads - 1) / threads, 1 << 30);
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(std::min<Index>(rows, 65535)));
  launch_kernel(stream, for_each_pack_kernel<width, F>, grid, threads, rows, cols, packs, f);
}

struct Add {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// The same bits in every lane.
template <typename T, typename Operation>
__device__ T reduce_warp(T value, Operation operation) {
  for (int offset = 16; offset > 0; offset /= 2)
    value = operation(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

/// The same bits in every thread; all threads of the block must call it.
template <typename T, typename Operation>
__device__ T reduce_block(T value, T neutral, Operation operation) {
  __shared__ T of_warp[32];
  const unsigned lane = threadIdx.x % 32;
  value = reduce_warp(value, operation);
  __syncthreads();  // the result of an earlier call may still be read
  if (lane == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  return reduce_warp(lane < blockDim.x / 32 ? of_warp[lane] : neutral, operation);
}

template <typename T>
__device__ T block_sum(T value) {
  return reduce_block(value, T{0}, Add{});
}
__device__ inline float block_max(float value) { return reduce_block(value, -INFINITY, Max{}); }

}  // namespace nmt::cuda
