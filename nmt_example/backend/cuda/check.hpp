#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <source_location>

namespace nmt::cuda {

/// Throws ddl::Error if `call` (its name, for the message) did not succeed: the message says which call
/// failed, where, on which device and why. Errors of earlier asynchronous work show up here too.
void check(cudaError_t result, const char* call,
           std::source_location where = std::source_location::current());
void check(cublasStatus_t result, const char* call,
           std::source_location where = std::source_location::current());

}  // namespace nmt::cuda
