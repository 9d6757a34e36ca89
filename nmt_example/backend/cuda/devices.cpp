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

namespace cuda {

std::string select_device(int device) {
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
  return properties.name;
}

}  // namespace cuda
}  // namespace nmt
