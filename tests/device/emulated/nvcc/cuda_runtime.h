#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "device/emulated/emulated_cuda.hpp"
#include "device/emulated/emulated_fibers.hpp"

/// What nvcc adds to C++, for kernels that the host's compiler compiles: their blocks run on emulated
/// devices, a fiber for each thread that waits. Replaces CUDA's own header. Has only what the kernels use.

// A block runs on one thread of the host.
#undef __shared__
#define __shared__ static thread_local  // NOLINT(bugprone-reserved-identifier)
#define __launch_bounds__(...)          // NOLINT(bugprone-reserved-identifier)

inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

namespace emulated_cuda {

constexpr unsigned warp_lanes = 32;

/// The lanes of a warp exchange words. Two exchanges can be in flight: a lane that has begun its next one
/// shows that it has read those of the one before.
class Warp {
 public:
  explicit Warp(unsigned lanes) : lanes_(lanes) {}
  /// The words of all lanes, by lane. All of them must call it.
  const std::array<std::uint64_t, warp_lanes>& exchange(unsigned lane, std::uint64_t word) {
    const unsigned number = begun_[lane]++;
    auto& words = words_[number % 2];
    words[lane] = word;
    if (++arrived_ == lanes_) {
      arrived_ = 0;
      ++complete_;
    }
    const uint3 own = threadIdx;
    while (complete_ == number) step_fiber();
    threadIdx = own;
    return words;
  }

 private:
  unsigned lanes_, arrived_ = 0, complete_ = 0;
  std::array<unsigned, warp_lanes> begun_{};
  std::array<std::array<std::uint64_t, warp_lanes>, 2> words_{};
};

inline thread_local std::vector<Warp>* warps = nullptr;

template <typename T>
std::uint64_t word_of(T value) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}
template <typename T>
T from_word(std::uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

inline const std::array<std::uint64_t, warp_lanes>& exchange(std::uint64_t word) {
  return (*warps)[threadIdx.x / warp_lanes].exchange(threadIdx.x % warp_lanes, word);
}

/// Runs the threads of a one-dimensional block.
template <typename Kernel, typename Parameters>
void run_block(const Spot& spot, dim3 threads, Kernel* kernel, const Parameters& parameters) {
  std::vector<Warp> own;
  for (unsigned first = 0; first < threads.x; first += warp_lanes)
    own.emplace_back(std::min(warp_lanes, threads.x - first));
  warps = &own;
  blockIdx = {spot.block.x, spot.block.y, spot.block.z};
  blockDim = threads;
  gridDim = spot.grid;
  run_fibers(spot.device, static_cast<int>(threads.x), [&](int thread) {
    threadIdx = {static_cast<unsigned>(thread), 0, 0};
    std::apply(kernel, parameters);
  });
}

}  // namespace emulated_cuda

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* configuration, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  using namespace emulated_cuda;
  const dim3 threads = configuration->blockDim;
  return launch({.kernel = reinterpret_cast<const void*>(kernel),
                 .grid = configuration->gridDim,
                 .threads = threads,
                 .stream = configuration->stream},
                [=, parameters = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)](
                    const Spot& spot) { run_block(spot, threads, kernel, parameters); });
}

template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel* kernel) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}

inline void __syncthreads() {
  const uint3 own = threadIdx;
  emulated_cuda::sync_fibers();
  threadIdx = own;
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  const unsigned from = threadIdx.x % emulated_cuda::warp_lanes ^ static_cast<unsigned>(mask);
  return emulated_cuda::from_word<T>(emulated_cuda::exchange(emulated_cuda::word_of(value))[from]);
}

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
