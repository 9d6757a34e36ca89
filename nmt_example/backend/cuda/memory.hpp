#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

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
/// What cuBLAS is recommended to have on the largest devices. Its own memory would become a part of every
/// recorded graph.
inline constexpr std::size_t cublas_workspace_bytes = std::size_t{32} << 20;
/// Computes on the stream, in full fp32, without atomics. `workspace`, of the device, must outlive it.
Cublas make_cublas(cudaStream_t stream, const std::shared_ptr<void>& workspace);

/// Memory of the current device, zero-filled in the stream's order. Throws `unsupported`, with the requested
/// and the free bytes, if there is not enough.
std::shared_ptr<void> allocate_device(std::size_t bytes, cudaStream_t stream);
/// Page-locked host memory, zero-filled.
std::shared_ptr<void> allocate_pinned(std::size_t bytes);

/// Copies rows of `row_bytes` bytes; `to_pitch` and `from_pitch` are the bytes from row to row.
void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               std::size_t row_bytes, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream);

/// Device memory for temporary use. It allocates only when a call asks for more than any call before.
class Scratch {
 public:
  /// At least `count` doubles, whose contents are undefined; valid until the next call.
  double* doubles(std::size_t count, cudaStream_t stream);

 private:
  std::vector<std::shared_ptr<void>> blocks_;  // the newest is used; recorded graphs may use the others
  std::size_t capacity_ = 0;
};

/// Copies to the device, after which the caller may overwrite its data. Small copies cross to the device
/// beside what it computes, through page-locked memory and memory of the device, and are put in their places
/// in the stream's order. They make the host wait only if more than 8 megabytes are in flight.
class Uploader {
 public:
  Uploader();
  /// Copies rows of `row_bytes` bytes; rows are `pitch` bytes apart in `to` and adjacent in `from`. Copies of
  /// more than 8 megabytes are made directly and waited for.
  void upload(void* to, std::size_t pitch, const void* from, std::size_t row_bytes, std::size_t rows,
              cudaStream_t stream);

 private:
  static constexpr std::size_t half_bytes = std::size_t{8} << 20;

  Stream crossing_ = make_stream();
  std::shared_ptr<void> on_host_, on_device_;
  Event arrived_ = make_event();
  std::array<Event, 2> done_;  // recorded after the copies from each half
  std::size_t half_ = 0;
  std::size_t used_ = 0;  // bytes of the current half
};

}  // namespace nmt::cuda
