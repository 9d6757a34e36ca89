#include "nmt_example/backend/cuda/devices.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "ddl/device.hpp"
#include "ddl/error.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/cuda/check.hpp"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt {

int cuda_devices() {
  try {
    return ddl::cuda_devices();
  } catch (const ddl::Error& error) {
    throw ddl::Error(error.code(), fmt::format("{}, or use --device=cpu", error.what()));
  }
}

std::size_t free_device_memory() {
  std::size_t free = 0, total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

namespace cuda {

Device select_device(int device, const CudaPrecision& precision) {
  const int count = cuda_devices();
  if (device < 0 || device >= count) {
    throw ddl::Error(ddl::ErrorCode::unsupported,
                     fmt::format("CUDA device {} does not exist: {} found, numbered from 0", device, count));
  }
  check(cudaSetDevice(device), "cudaSetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  if (!kernels_run_here()) {
    throw ddl::Error(
        ddl::ErrorCode::unsupported,
        fmt::format("CUDA device {}, {}, has compute capability {}.{}, but this program was built for {}; "
                    "configure with -DCMAKE_CUDA_ARCHITECTURES={}{}",
                    device, properties.name, properties.major, properties.minor, DDL_CUDA_ARCHITECTURES,
                    properties.major, properties.minor));
  }
  const bool has_both = properties.major >= 8;  // products of bf16 and of tf32
  const auto refuse = [&](const char* asked, const char* instead) {
    throw ddl::Error(
        ddl::ErrorCode::unsupported,
        fmt::format("{} needs compute capability 8.0 or later, but CUDA device {}, {}, has {}.{}; use {}",
                    asked, device, properties.name, properties.major, properties.minor, instead));
  };
  if (precision.tf32 && !has_both) refuse("--dtype=tf32", "--dtype=f32 or --dtype=mixed");
  if (precision.mixed_type == MixedType::bf16 && !has_both) refuse("--mixed_type=bf16", "--mixed_type=f16");
  const bool bf16 =
      precision.mixed_type == MixedType::automatic ? has_both : precision.mixed_type == MixedType::bf16;
  return {properties.name, bf16 ? ddl::DataType::bf16 : ddl::DataType::f16};
}

}  // namespace cuda
}  // namespace nmt
