#include "ddl/device/nccl/fingerprint_kernels.hpp"

namespace ddl::device {
namespace {

__global__ void write_kernel(const __grid_constant__ FingerprintBatch batch, std::int64_t* numbers) {
  write_fingerprint(batch, numbers, threadIdx.x);
}

__global__ void compare_kernel(const __grid_constant__ FingerprintBatch batch, const std::int64_t* numbers,
                               std::uint64_t* call) {
  const std::uint64_t found = differing_call(batch, numbers);
  if (found != 0 && *call == 0) *call = found;
}

}  // namespace

cudaError_t launch_write_fingerprints(const FingerprintBatch& batch, std::int64_t* numbers,
                                      cudaStream_t stream) {
  write_kernel<<<1, fingerprints_at_once, 0, stream>>>(batch, numbers);
  return cudaGetLastError();
}

cudaError_t launch_compare_fingerprints(const FingerprintBatch& batch, const std::int64_t* numbers,
                                        std::uint64_t* call, cudaStream_t stream) {
  compare_kernel<<<1, 1, 0, stream>>>(batch, numbers, call);
  return cudaGetLastError();
}

cudaError_t load_fingerprint_kernels() {
  cudaFuncAttributes attributes{};
  const cudaError_t result = cudaFuncGetAttributes(&attributes, write_kernel);
  return result != cudaSuccess ? result : cudaFuncGetAttributes(&attributes, compare_kernel);
}

}  // namespace ddl::device
