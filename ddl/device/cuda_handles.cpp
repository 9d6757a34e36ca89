#include "ddl/device/cuda_handles.hpp"

#include <algorithm>

#include "ddl/cuda_check.hpp"

namespace ddl::device {

Stream make_stream() {
  cudaStream_t made = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return Stream(made);
}

Stream make_urgent_stream() {
  int least = 0;
  int greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t made = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest),
             "cudaStreamCreateWithPriority");
  return Stream(made);
}

Event make_event() {
  cudaEvent_t made = nullptr;
  check_cuda(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return Event(made);
}

Event make_timed_event() {
  cudaEvent_t made = nullptr;
  check_cuda(cudaEventCreate(&made), "cudaEventCreate");
  return Event(made);
}

void require_alive(cudaStream_t stream) {
  const cudaError_t result = cudaStreamQuery(stream);
  if (result == cudaErrorNotReady) {
    cudaGetLastError();  // it must not be blamed on the next launch
  } else {
    check_cuda(result, "cudaStreamQuery");
  }
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void allow_captures_of_others() noexcept {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);  // fails only where every later call does, too
}

/// A pitch of 2 GiB or more is one that cudaMemcpy2DAsync refuses.
void copy_pieces(std::byte* to, std::size_t to_pitch, const std::byte* from, std::size_t from_pitch,
                 std::size_t bytes, std::size_t pieces, cudaMemcpyKind kind, cudaStream_t stream) {
  int most_pitch = 0;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&most_pitch, cudaDevAttrMaxPitch, device), "cudaDeviceGetAttribute");
  const bool is_one_copy =
      pieces > 1 && std::max(to_pitch, from_pitch) <= static_cast<std::size_t>(most_pitch);
  if (is_one_copy) {
    check_cuda(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, bytes, pieces, kind, stream),
               "cudaMemcpy2DAsync");
    return;
  }
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    check_cuda(cudaMemcpyAsync(to + piece * to_pitch, from + piece * from_pitch, bytes, kind, stream),
               "cudaMemcpyAsync");
  }
}

}  // namespace ddl::device
