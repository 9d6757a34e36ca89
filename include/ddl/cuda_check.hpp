#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

/// For programs that use CUDA beside the library, as it does itself. Link ddl::cuda.
namespace ddl {

/// Throws `internal` if `call` (its name, for the message) did not succeed, saying where, on which device and
/// why. Errors of earlier asynchronous work show up here too.
void check_cuda(cudaError_t result, const char* call,
                std::source_location where = std::source_location::current());

/// Number of CUDA devices, at least 1. Throws `unsupported` where none can be used, saying what was found and
/// what to do.
int cuda_devices();

}  // namespace ddl
