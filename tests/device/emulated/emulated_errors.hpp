#pragma once

#include <cuda_runtime_api.h>

/// What goes wrong: on a thread, or with a device.
namespace emulated_cuda {

/// Of the calling thread.
int current_device();

/// Keeps an error for cudaGetLastError, and returns it.
cudaError_t result(cudaError_t error);

/// What stands in the way of `function` on the current device: nothing, mostly.
cudaError_t obstacle(const char* function);

}  // namespace emulated_cuda
