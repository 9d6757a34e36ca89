#include "nmt_example/backend/cuda/devices.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "ddl/error.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/cuda/check.hpp"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

[[noreturn]] void no_device(cudaError_t error) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  cudaGetLastError();
  std::string found, wanted;
  if (driver == 0) {
    found = "NVIDIA's driver is not installed, or this container was started without access to the devices";
    wanted = fmt::format(
        "install a driver for CUDA {}, or start the container with its devices (docker run "
        "--gpus all)",
        version_text(runtime));
  } else if (error == cudaErrorInsufficientDriver) {
    found = fmt::format("the driver is for CUDA {}, this program for {}", version_text(driver),
                        version_text(runtime));
    wanted = "install a newer driver, or build with an older CUDA toolkit";
  } else {
    found = fmt::format("the driver (CUDA {}) is there, but shows no device", version_text(driver));
    wanted = "see what nvidia-smi says, and whether CUDA_VISIBLE_DEVICES hides the devices";
  }
  throw ddl::Error(
      ddl::ErrorCode::unsupported,
      fmt::format("no CUDA device can be used: {} (cudaGetDeviceCount: {}). To go on, {}, or use "
                  "--device=cpu.",
                  found, cudaGetErrorString(error), wanted));
}

}  // namespace

int cuda_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) no_device(error == cudaSuccess ? cudaErrorNoDevice : error);
  return count;
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
