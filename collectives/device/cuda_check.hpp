#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

namespace ddl {

/// Throws `internal` if `call` (its name, for the message) did not succeed, saying where, on which device and
/// why. Errors of earlier asynchronous work show up here too.
void check_cuda(cudaError_t result, const char* call,
                std::source_location where = std::source_location::current());

}  // namespace ddl
