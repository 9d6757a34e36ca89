#include "nmt_example/backend/cuda/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ddl/error.hpp"
#include "nmt_example/backend/cuda/check.hpp"

namespace nmt::cuda {

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return Stream(stream);
}

Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return Event(event);
}

Cublas make_cublas(cudaStream_t stream, const std::shared_ptr<void>& workspace) {
  const CublasLibrary& cublas = CublasLibrary::get();
  cublasHandle_t handle = nullptr;
  check(cublas.create(&handle), "cublasCreate");
  Cublas owner(handle);
  check(cublas.set_stream(handle, stream), "cublasSetStream");
  check(cublas.set_workspace(handle, workspace.get(), cublas_workspace_bytes), "cublasSetWorkspace");
  // So that 16-bit results are rounded once.
  check(cublas.set_math_mode(handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION), "cublasSetMathMode");
  check(cublas.set_atomics_mode(handle, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
  return owner;
}

std::shared_ptr<void> allocate_device(std::size_t bytes, cudaStream_t stream) {
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, std::max<std::size_t>(bytes, 1));
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw ddl::Error(ddl::ErrorCode::unsupported,
                     fmt::format("the CUDA device has too little memory: {:.1f} MB were asked for, {:.1f} of "
                                 "{:.1f} MB are free. Lower --batch_size or --src_max_len and --tgt_max_len, "
                                 "or end other programs that use the device.",
                                 static_cast<double>(bytes) / 1e6, static_cast<double>(free) / 1e6,
                                 static_cast<double>(total) / 1e6));
  }
  check(result, "cudaMalloc");
  std::shared_ptr<void> owner(memory, [](void* p) { cudaFree(p); });
  check(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync");
  return owner;
}

std::shared_ptr<void> allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, std::max<std::size_t>(bytes, 1)), "cudaMallocHost");
  std::memset(memory, 0, bytes);
  return {memory, [](void* p) { cudaFreeHost(p); }};
}

void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               std::size_t row_bytes, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  if (row_bytes == 0 || rows == 0) return;
  if (rows == 1 || (to_pitch == row_bytes && from_pitch == row_bytes)) {  // a 2D pitch is below 2^31
    check(cudaMemcpyAsync(to, from, row_bytes * rows, kind, stream), "cudaMemcpyAsync");
  } else {
    check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, rows, kind, stream),
          "cudaMemcpy2DAsync");
  }
}

double* Scratch::doubles(std::size_t count, cudaStream_t stream) {
  if (count > capacity_) {
    capacity_ = std::max(count, 2 * capacity_);
    blocks_.push_back(allocate_device(capacity_ * sizeof(double), stream));
  }
  return blocks_.empty() ? nullptr : static_cast<double*>(blocks_.back().get());
}

Uploader::Uploader()
    : on_host_(allocate_pinned(2 * half_bytes)),
      on_device_(allocate_device(2 * half_bytes, crossing_.get())),
      done_{make_event(), make_event()} {}

void Uploader::upload(void* to, std::size_t pitch, const void* from, std::size_t row_bytes, std::size_t rows,
                      cudaStream_t stream) {
  const std::size_t bytes = row_bytes * rows;
  if (bytes == 0) return;
  if (bytes > half_bytes) {
    copy_rows(to, pitch, from, row_bytes, row_bytes, rows, cudaMemcpyHostToDevice, stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return;
  }
  if (used_ + bytes > half_bytes) {
    check(cudaEventRecord(done_[half_].get(), stream), "cudaEventRecord");
    half_ = 1 - half_;
    used_ = 0;
    check(cudaEventSynchronize(done_[half_].get()), "cudaEventSynchronize");
  }
  const std::size_t place = half_ * half_bytes + used_;
  std::byte* const staged = static_cast<std::byte*>(on_host_.get()) + place;
  std::byte* const crossed = static_cast<std::byte*>(on_device_.get()) + place;
  std::memcpy(staged, from, bytes);
  used_ += (bytes + 63) / 64 * 64;
  copy_rows(crossed, bytes, staged, bytes, bytes, 1, cudaMemcpyHostToDevice, crossing_.get());
  check(cudaEventRecord(arrived_.get(), crossing_.get()), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream, arrived_.get(), 0), "cudaStreamWaitEvent");
  copy_rows(to, pitch, crossed, row_bytes, row_bytes, rows, cudaMemcpyDeviceToDevice, stream);
}

}  // namespace nmt::cuda
