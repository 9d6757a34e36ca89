#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "nmt_example/backend/tensor.hpp"

/// Shared by several kernels. Blocks are one-dimensional and consist of whole warps.
namespace nmt::cuda {

using Index = std::int64_t;

__device__ inline float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float wide(__half x) { return __half2float(x); }
__device__ inline void narrow(float from, __nv_bfloat16& to) { to = __float2bfloat16(from); }
__device__ inline void narrow(float from, __half& to) { to = __float2half(from); }

/// A matrix of fp32, fp16 or bf16 in device code, which computes in fp32. All threads of a kernel take the
/// same branch, and memory is slower.
struct View {
  void* data;
  Index rows, cols, stride;
  ddl::DataType type;

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
  /// A row of fp32.
  __device__ float* row(Index r) const { return static_cast<float*>(data) + r * stride; }
};

inline constexpr unsigned block_threads = 256;

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

/// The same for blocks that wait for each other, with `shared` bytes of dynamic shared memory each.
template <typename... Parameters, typename... Arguments>
void launch_together(cudaStream_t stream, void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                     std::size_t shared, Arguments&&... arguments) {
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t configuration{};
  configuration.gridDim = dim3(blocks);
  configuration.blockDim = dim3(threads);
  configuration.dynamicSmemBytes = shared;
  configuration.stream = stream;
  configuration.attrs = &together;
  configuration.numAttrs = 1;
  cudaLaunchKernelEx(&configuration, kernel, std::forward<Arguments>(arguments)...);
}

/// Lets the kernel's blocks have so much dynamic shared memory; returns whether the current device can.
template <typename... Parameters>
bool allow_shared_memory(void (*kernel)(Parameters...), std::size_t bytes) {
  const bool can = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(bytes)) == cudaSuccess;
  if (!can) cudaGetLastError();
  return can;
}

#ifdef __CUDACC__  // emulated devices have their own
__device__ inline std::byte* dynamic_shared_memory() {
  extern __shared__ __align__(128) std::byte memory[];
  return memory;
}
#endif

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
  const Index across = std::min<Index>((cols + block_threads - 1) / block_threads, 1 << 30);
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(std::min<Index>(rows, 65535)));
  launch_kernel(stream, for_each_kernel<F>, grid, block_threads, rows, cols, f);
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
