// The functions of fingerprint_kernels.hpp for emulated devices.

#include "ddl/device/nccl/fingerprint_kernels.hpp"
#include "device/emulated/emulated_cuda.hpp"

namespace ddl::device {
namespace {

constexpr char write_kernel = 0;
constexpr char compare_kernel = 0;

}  // namespace

cudaError_t launch_write_fingerprints(const FingerprintBatch& batch, std::int64_t* numbers,
                                      cudaStream_t stream) {
  return emulated_cuda::launch(
      {.kernel = &write_kernel, .grid = dim3(1), .threads = dim3(fingerprints_at_once), .stream = stream},
      [=](const emulated_cuda::Spot&) {
        for (std::uint32_t i = 0; i < fingerprints_at_once; ++i) write_fingerprint(batch, numbers, i);
      });
}

cudaError_t launch_compare_fingerprints(const FingerprintBatch& batch, const std::int64_t* numbers,
                                        std::uint64_t* call, cudaStream_t stream) {
  return emulated_cuda::launch(
      {.kernel = &compare_kernel, .grid = dim3(1), .threads = dim3(1), .stream = stream},
      [=](const emulated_cuda::Spot&) {
        const std::uint64_t found = differing_call(batch, numbers);
        if (found != 0 && __atomic_load_n(call, __ATOMIC_RELAXED) == 0)
          __atomic_store_n(call, found, __ATOMIC_RELEASE);
      });
}

cudaError_t load_fingerprint_kernels() {
  cudaFuncAttributes attributes{};
  const cudaError_t result = cudaFuncGetAttributes(&attributes, &write_kernel);
  return result != cudaSuccess ? result : cudaFuncGetAttributes(&attributes, &compare_kernel);
}

}  // namespace ddl::device
