#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <thread>
#include <vector>

#include "device/emulated/emulated_runtime.hpp"

/// What a capture holds, and what it prohibits. All under the runtime's mutex.
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

/// Of what a stream captures that is told to do something.
cudaError_t capture_obstacle(const CUstream_st& stream);
/// Adds a node to the stream's capture.
void capture_work(CUstream_st& stream, Work work);
/// Of calls that CUDA calls potentially unsafe: captures of this thread prohibit them, and of others.
cudaError_t unsafe_call();
/// Of calls that wait for a stream, or ask it.
cudaError_t call_on(const CUstream_st& stream);
/// Of calls that wait for an event, or ask it.
cudaError_t call_on(const CUevent_st& event);
/// Has the stream's capture, and the stream itself, wait for an event that was recorded in a capture.
cudaError_t capture_wait(CUstream_st& stream, const CUevent_st& event);
/// What is to be done before a stream goes.
void leave_capture(cudaStream_t stream);

}  // namespace emulated_cuda
