#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <thread>
#include <vector>

#include "device/emulated/emulated_runtime.hpp"

/// The contents and the prohibitions of captures. Callers hold the runtime's mutex.
namespace emulated_cuda {

struct Capture {
  unsigned long long number;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  cudaStream_t origin;
  std::vector<cudaStream_t> streams;  ///< All that have been captured, the origin first.
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  bool is_valid = true;
  bool has_ended = false;
};

/// The error of submitting work to a stream that is capturing, if any.
cudaError_t capture_obstacle(const CUstream_st& stream);
/// Adds a node to the stream's capture.
void capture_work(CUstream_st& stream, Work work);
/// The error of a call that CUDA calls potentially unsafe: captures of this thread, and global ones, prohibit
/// it.
cudaError_t unsafe_call();
/// The error of a call that waits for or queries a stream.
cudaError_t call_on(const CUstream_st& stream);
/// The error of a call that waits for or queries an event.
cudaError_t call_on(const CUevent_st& event);
/// Makes a stream wait for an event that was recorded in a capture; the stream joins that capture.
cudaError_t capture_wait(CUstream_st& stream, const CUevent_st& event);
/// Removes a stream from its capture before it is destroyed.
void leave_capture(cudaStream_t stream);

}  // namespace emulated_cuda
