#include "ddl/device/stream_mark.hpp"

#include <fmt/format.h>

#include "ddl/error.hpp"

namespace ddl::device {
namespace {

/// CUresult cuStreamWriteValue64(CUstream, CUdeviceptr, cuuint64_t, unsigned), of the driver.
using WriteValue = int (*)(cudaStream_t stream, unsigned long long address, std::uint64_t value,
                           unsigned flags);

WriteValue find_write_value() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  constexpr unsigned first_version_with_it_everywhere = 12'000;
  const cudaError_t result = cudaGetDriverEntryPointByVersion(
      "cuStreamWriteValue64", &function, first_version_with_it_everywhere, cudaEnableDefault, &found);
#else
  const cudaError_t result =
      cudaGetDriverEntryPoint("cuStreamWriteValue64", &function, cudaEnableDefault, &found);
#endif
  check_cuda(result, "cudaGetDriverEntryPoint");
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    throw Error(ErrorCode::unsupported,
                "the driver has no cuStreamWriteValue64; expected one for CUDA 12 or later");
  }
  return reinterpret_cast<WriteValue>(function);
}

WriteValue write_value() {
  static const WriteValue function = find_write_value();
  return function;
}

}  // namespace

void StreamMark::allocate() {
  write_value();
  value_.allocate();
}

void StreamMark::write(std::uint64_t value, cudaStream_t stream) const {
  constexpr unsigned behind_all_writes = 0;
  const auto address = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(value_.device()));
  const int result = write_value()(stream, address, value, behind_all_writes);
  if (result == 0) return;
  check_cuda(cudaGetLastError(), "cuStreamWriteValue64");  // says more, if the device is lost
  throw Error(ErrorCode::internal, fmt::format("cuStreamWriteValue64 failed with CUresult {}", result));
}

std::uint64_t StreamMark::value() const noexcept { return __atomic_load_n(value_.host(), __ATOMIC_ACQUIRE); }

}  // namespace ddl::device
