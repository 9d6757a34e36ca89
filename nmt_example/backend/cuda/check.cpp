#include "nmt_example/backend/cuda/check.hpp"

#include <fmt/format.h>

#include <string_view>

#include "ddl/error.hpp"

namespace nmt::cuda {

void check(cublasStatus_t result, const char* call, std::source_location where) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  int device = -1;
  cudaGetDevice(&device);
  const std::string_view path = where.file_name();
  throw ddl::Error(ddl::ErrorCode::internal,
                   fmt::format("{} failed on CUDA device {} ({}:{}): {} ({})", call, device,
                               path.substr(path.find_last_of('/') + 1), where.line(),
                               cublasGetStatusString(result), cublasGetStatusName(result)));
}

}  // namespace nmt::cuda
