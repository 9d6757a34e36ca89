#pragma once

#include <cuda_runtime_api.h>

/// Errors of threads and faults of devices.
namespace emulated_cuda {

/// The current device of the calling thread.
int current_device();

/// Stores an error for cudaGetLastError and returns it.
cudaError_t result(cudaError_t error);

/// The reason why `function` cannot run on the current device; cudaSuccess if there is none.
cudaError_t obstacle(const char* function);

}  // namespace emulated_cuda
