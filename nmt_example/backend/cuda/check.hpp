#pragma once

#include <cublas_v2.h>

#include <source_location>

#include "ddl/cuda_check.hpp"

namespace nmt::cuda {

/// As `ddl::check_cuda`.
void check(cublasStatus_t result, const char* call,
           std::source_location where = std::source_location::current());
inline void check(cudaError_t result, const char* call,
                  std::source_location where = std::source_location::current()) {
  ddl::check_cuda(result, call, where);
}

}  // namespace nmt::cuda
