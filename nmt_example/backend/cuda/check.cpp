#include "nmt_example/backend/cuda/check.hpp"

#include <fmt/format.h>

#include <string_view>

#include "ddl/error.hpp"
#include "nmt_example/backend/cuda/cublas_library.hpp"

namespace nmt::cuda {
namespace {

[[noreturn]] void fail(const char* call, const std::source_location& where, const char* text,
                       const char* name) {
  int device = -1;
  cudaGetDevice(&device);
  const std::string_view path = where.file_name();
  throw ddl::Error(ddl::ErrorCode::internal,
                   fmt::format("{} failed on CUDA device {} ({}:{}): {} ({})", call, device,
                               path.substr(path.find_last_of('/') + 1), where.line(), text, name));
}

}  // namespace

void check(cudaError_t result, const char* call, std::source_location where) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // clears a non-sticky error, so that the next call does not report it
  fail(call, where, cudaGetErrorString(result), cudaGetErrorName(result));
}

void check(cublasStatus_t result, const char* call, std::source_location where) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  const CublasLibrary& cublas = CublasLibrary::get();
  fail(call, where, cublas.status_string(result), cublas.status_name(result));
}

}  // namespace nmt::cuda
