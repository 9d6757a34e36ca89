#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <source_location>

namespace nmt::cuda {

/// Throws `internal` if `call` (its name, for the message) did not succeed, with the place, the device and
/// the reason. Errors of earlier asynchronous work show up here too; CUDA_LAUNCH_BLOCKING=1 finds which call.
void check(cudaError_t result, const char* call,
           std::source_location where = std::source_location::current());
void check(cublasStatus_t result, const char* call,
           std::source_location where = std::source_location::current());

}  // namespace nmt::cuda
