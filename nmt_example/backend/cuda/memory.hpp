#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>

#include "nmt_example/backend/cuda/cublas_library.hpp"

namespace nmt::cuda {

struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
using Stream = std::unique_ptr<CUstream_st, DestroyStream>;
Stream make_stream();

struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;
Event make_event();

struct DestroyCublas {
  void operator()(cublasHandle_t handle) const noexcept { CublasLibrary::get().destroy(handle); }
};
using Cublas = std::unique_ptr<cublasContext, DestroyCublas>;
/// Computes on the stream, in full fp32.
Cublas make_cublas(cudaStream_t stream);

/// Memory of the current device, filled with zeros in the stream's order. Throws `unsupported`, with
/// what was asked for and what is free, when there is not enough.
std::shared_ptr<void> allocate_device(std::size_t bytes, cudaStream_t stream);
/// Page-locked memory of the host, zero-filled.
std::shared_ptr<void> allocate_pinned(std::size_t bytes);

/// Copies rows of `row_bytes`, `to_pitch` and `from_pitch` bytes from row to row.
void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               std::size_t row_bytes, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream);

/// Working memory on the device that grows when a larger piece is asked for, and only then allocates.
class Scratch {
 public:
  /// At least `count` doubles, whose contents are undefined; valid until the next call.
  double* doubles(std::size_t count, cudaStream_t stream);

 private:
  std::shared_ptr<void> memory_;
  std::size_t capacity_ = 0;
};

/// Copies to the device what the caller may overwrite at once: small pieces through page-locked memory,
/// without waiting unless more than a megabyte is under way.
class Uploader {
 public:
  Uploader();
  /// Rows of `row_bytes`, `pitch` bytes from row to row in `to`, without gaps in `from`. Larger pieces than
  /// half a megabyte are copied directly, and waited for.
  void upload(void* to, std::size_t pitch, const void* from, std::size_t row_bytes, std::size_t rows,
              cudaStream_t stream);

 private:
  static constexpr std::size_t half_bytes = std::size_t{512} << 10;

  std::shared_ptr<void> staging_;
  std::array<Event, 2> done_;  // the copies from each half
  std::size_t half_ = 0;
  std::size_t used_ = 0;  // bytes of that half
};

}  // namespace nmt::cuda
