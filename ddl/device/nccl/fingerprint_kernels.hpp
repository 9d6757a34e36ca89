#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "collectives/kernels/host_device.hpp"

/// Kernels of Fingerprints.
namespace ddl::device {

constexpr std::uint32_t fingerprints_at_once = 64;
/// Of each, itself and its complement.
constexpr std::uint32_t compared_numbers = 2 * fingerprints_at_once;

/// Of calls `first` to `first` + fingerprints_at_once - 1.
struct FingerprintBatch {
  std::uint64_t first = 0;
  std::int64_t values[fingerprints_at_once] = {};
};

DDL_HOST_DEVICE void write_fingerprint(const FingerprintBatch& batch, std::int64_t* numbers,
                                       std::uint32_t i) {
  numbers[i] = batch.values[i];
  numbers[fingerprints_at_once + i] = ~batch.values[i];
}

/// `numbers`: the greatest of all ranks. The first call in which some rank's differs; 0: none.
DDL_HOST_DEVICE std::uint64_t differing_call(const FingerprintBatch& batch, const std::int64_t* numbers) {
  for (std::uint32_t i = 0; i < fingerprints_at_once; ++i) {
    const std::int64_t own = batch.values[i];
    if (numbers[i] != own || numbers[fingerprints_at_once + i] != ~own) return batch.first + i;
  }
  return 0;
}

cudaError_t launch_write_fingerprints(const FingerprintBatch& batch, std::int64_t* numbers,
                                      cudaStream_t stream);
/// *call becomes that of `differing_call`, if there is one and it is 0.
cudaError_t launch_compare_fingerprints(const FingerprintBatch& batch, const std::int64_t* numbers,
                                        std::uint64_t* call, cudaStream_t stream);
/// See load_exchange_kernels.
cudaError_t load_fingerprint_kernels();

}  // namespace ddl::device
