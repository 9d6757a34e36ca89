#pragma once

#include <cstdint>

namespace ddl::collectives::device {

/// The `Block` of exchange_body.hpp on a device. Only nvcc compiles it.
class DeviceBlock {
 public:
  __device__ int index() const { return static_cast<int>(blockIdx.x); }
  __device__ int blocks() const { return static_cast<int>(gridDim.x); }
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() { __syncthreads(); }
  __device__ std::uint64_t now_ns() const {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  __device__ void pause() const { __nanosleep(100); }
  __device__ std::uint32_t load(const std::uint32_t& flag) const {
    std::uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(&flag) : "memory");
    return value;
  }
  __device__ std::uint64_t load(const std::uint64_t& flag) const {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(&flag) : "memory");
    return value;
  }
  // A release is cumulative (PTX ISA, "Memory Consistency Model"): it also publishes what other threads of
  // the block wrote before a `sync`, so no fence is needed.
  __device__ void store(std::uint64_t& flag, std::uint64_t value) const {
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(&flag), "l"(value) : "memory");
  }
  __device__ void tell(std::uint64_t& flag, std::uint64_t value) const {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(&flag), "l"(value));
  }
};

}  // namespace ddl::collectives::device
