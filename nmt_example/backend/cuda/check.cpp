#include "nmt_example/backend/cuda/check.hpp"

#include <fmt/format.h>

#include <string_view>

#include "ddl/error.hpp"
#include "nmt_example/backend/cuda/cublas_library.hpp"

namespace nmt::cuda {

void check(cublasStatus_t result, const char* call, std::source_location where) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  int device = -1;
  cudaGetDevice(&device);
  const CublasLibrary& cublas = CublasLibrary::get();
  const std::string_view path = where.file_name();
  throw ddl::Error(ddl::ErrorCode::internal,
                   fmt::format("{} failed on CUDA device {} ({}:{}): {} ({})", call, device,
                               path.substr(path.find_last_of('/') + 1), where.line(),
                               cublas.status_string(result), cublas.status_name(result)));
}

}  // namespace nmt::cuda
