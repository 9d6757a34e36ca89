#include "nmt_example/backend/cuda/check.hpp"

#include <fmt/format.h>

#include <string_view>

#include "ddl/error.hpp"

namespace nmt::cuda {
namespace {

[[noreturn]] void fail(std::string_view call, std::string_view reason, const std::source_location& where) {
  int device = -1;
  cudaGetDevice(&device);
  cudaGetLastError();  // What is not sticky must not be blamed on the next call.
  const std::string_view path = where.file_name();
  throw ddl::Error(
      ddl::ErrorCode::internal,
      fmt::format("{} failed on CUDA device {} ({}:{}): {}. An error of an earlier, asynchronous "
                  "kernel can show up here; CUDA_LAUNCH_BLOCKING=1 finds which one.",
                  call, device, path.substr(path.find_last_of('/') + 1), where.line(), reason));
}

}  // namespace

void check(cudaError_t result, const char* call, std::source_location where) {
  if (result == cudaSuccess) return;
  fail(call, fmt::format("{} ({})", cudaGetErrorString(result), cudaGetErrorName(result)), where);
}

void check(cublasStatus_t result, const char* call, std::source_location where) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  fail(call, fmt::format("{} ({})", cublasGetStatusString(result), cublasGetStatusName(result)), where);
}

}  // namespace nmt::cuda
