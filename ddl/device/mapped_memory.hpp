#pragma once

#include <cuda_runtime_api.h>

#include <new>

#include "ddl/cuda_check.hpp"

namespace ddl::device {

/// A value in page-locked memory of the host that the device reaches.
template <typename T>
class MappedMemory {
 public:
  MappedMemory() = default;
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory() {
    if (host_ != nullptr) cudaFreeHost(host_);
  }

  /// T(). Once. Throws `internal`.
  void allocate() {
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable),
               "cudaHostAlloc");
    host_ = new (memory) T();
    void* seen = nullptr;
    check_cuda(cudaHostGetDevicePointer(&seen, memory, 0), "cudaHostGetDevicePointer");
    device_ = static_cast<T*>(seen);
  }
  /// It is never given back: a kernel may still write to it.
  void abandon() noexcept { host_ = nullptr; }

  [[nodiscard]] T* host() const noexcept { return host_; }
  [[nodiscard]] T* device() const noexcept { return device_; }

 private:
  T* host_ = nullptr;
  T* device_ = nullptr;
};

}  // namespace ddl::device
