#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

namespace ddl::device {

/// Throws `internal` if `call` (its name, for the message) did not succeed, saying where, on which device and
/// why. Errors of earlier asynchronous work show up here too.
void check_cuda(cudaError_t result, const char* call,
                std::source_location where = std::source_location::current());

/// Selects a device; -1: `local_rank` modulo the number of devices. Returns its number. Throws `unsupported`
/// where there is none that can be used, saying what was found and what to do.
int select_device(int wanted, int local_rank);

}  // namespace ddl::device
