#include "ddl/cuda_check.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "ddl/error.hpp"

namespace ddl {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

[[noreturn]] void no_device(cudaError_t error) {
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  cudaGetLastError();
  std::string found;
  std::string wanted;
  if (driver == 0) {
    found = "NVIDIA's driver is not installed, or this container was started without access to the devices";
    wanted = fmt::format(
        "install a driver for CUDA {}, or start the container with its devices (docker run --gpus all)",
        version_text(runtime));
  } else if (error == cudaErrorInsufficientDriver) {
    found = fmt::format("the driver is for CUDA {}, this program for {}", version_text(driver),
                        version_text(runtime));
    wanted = "install a newer driver, or build with an older CUDA toolkit";
  } else {
    found = fmt::format("the driver (CUDA {}) is there, but shows no device", version_text(driver));
    wanted = "see what nvidia-smi says, and whether CUDA_VISIBLE_DEVICES hides the devices";
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("no CUDA device can be used: {} (cudaGetDeviceCount: {}); {}", found,
                          cudaGetErrorString(error), wanted));
}

}  // namespace

void check_cuda(cudaError_t result, const char* call, std::source_location where) {
  if (result == cudaSuccess) return;
  int device = -1;
  cudaGetDevice(&device);
  cudaGetLastError();  // what is not sticky must not be blamed on the next call
  const std::string_view path = where.file_name();
  throw Error(
      ErrorCode::internal,
      fmt::format("{} failed on CUDA device {} ({}:{}): {} ({}). An error of an earlier, asynchronous kernel "
                  "can show up here; CUDA_LAUNCH_BLOCKING=1 finds which one",
                  call, device, path.substr(path.find_last_of('/') + 1), where.line(),
                  cudaGetErrorString(result), cudaGetErrorName(result)));
}

int cuda_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) no_device(error == cudaSuccess ? cudaErrorNoDevice : error);
  return count;
}

}  // namespace ddl
