#pragma once

#include <cuda_runtime_api.h>

#include "collectives/device/cuda_check.hpp"

namespace perf {

/// Measures the time between two points of a stream.
class DeviceTimer {
 public:
  DeviceTimer() {
    ddl::check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    ddl::check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;
  ~DeviceTimer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  void begin(cudaStream_t stream) { ddl::check_cuda(cudaEventRecord(begin_, stream), "cudaEventRecord"); }
  void end(cudaStream_t stream) { ddl::check_cuda(cudaEventRecord(end_, stream), "cudaEventRecord"); }
  /// Valid once the stream's work is done.
  [[nodiscard]] double us() const {
    float ms = 0;
    ddl::check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return 1000.0 * static_cast<double>(ms);
  }

 private:
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace perf
