// Functions of CUDA's driver, which programs get through the runtime.

#include <cuda.h>

#include <cstdint>
#include <string>

#include "device/emulated/emulated_errors.hpp"
#include "device/emulated/emulated_runtime.hpp"

using namespace emulated_cuda;

namespace {

/// A thread that loads the value with acquire also sees all earlier writes of the stream.
CUresult write_value(CUstream stream, CUdeviceptr to, cuuint64_t value, unsigned) {
  if (to % sizeof value != 0) return CUDA_ERROR_INVALID_VALUE;
  const cudaError_t error =
      enqueue("cuStreamWriteValue64", stream, ValueWrite{reinterpret_cast<std::uint64_t*>(to), value});
  return static_cast<CUresult>(error);  // both enumerations have the same numbers
}

cudaError_t entry_point(const char* symbol, void** function, cudaDriverEntryPointQueryResult* status) {
  if (const cudaError_t error = obstacle("cudaGetDriverEntryPoint"); error != cudaSuccess)
    return result(error);
  const bool is_known = std::string(symbol) == "cuStreamWriteValue64";
  *function = is_known ? reinterpret_cast<void*>(write_value) : nullptr;
  if (status != nullptr)
    *status = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, function, status);
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int,
                                             unsigned long long, cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, function, status);
}
#endif

}  // extern "C"
