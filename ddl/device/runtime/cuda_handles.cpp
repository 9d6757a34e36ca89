#include "ddl/device/runtime/cuda_handles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "ddl/device.hpp"
#include "ddl/error.hpp"

namespace ddl {
namespace {

constexpr const char* connections = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr const char* loading = "CUDA_MODULE_LOADING";

std::string_view variable(const char* name) noexcept {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

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
  cudaGetLastError();  // clears a non-sticky error, so that the next call does not report it
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

void set_cuda_environment() {
  constexpr int unless_it_is_set = 0;
  setenv(connections, std::to_string(device::most_connections).c_str(), unless_it_is_set);
  setenv(loading, device::eager, unless_it_is_set);
}

bool device::has_cuda_environment() noexcept {
  return std::atoi(variable(connections).data()) >= device::most_connections &&
         variable(loading) == device::eager;
}

}  // namespace ddl

namespace ddl::device {

Stream make_stream(Priority priority) {
  int least = 0;
  int greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t made = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking,
                                          priority == Priority::urgent ? greatest : least),
             "cudaStreamCreateWithPriority");
  return Stream(made);
}

Event make_event(unsigned flags) {
  cudaEvent_t made = nullptr;
  check_cuda(cudaEventCreateWithFlags(&made, flags), "cudaEventCreateWithFlags");
  return Event(made);
}

void join(cudaStream_t first, cudaStream_t then, const Event& event) {
  check_cuda(cudaEventRecord(event.get(), first), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(then, event.get(), 0), "cudaStreamWaitEvent");
}

DeviceBytes allocate_on_device(std::size_t bytes, const std::string& whose, cudaStream_t stream) {
  void* memory = nullptr;
  const std::size_t wanted = std::max<std::size_t>(bytes, 1);
  if (const cudaError_t result = cudaMalloc(&memory, wanted); result != cudaSuccess) {
    cudaGetLastError();
    throw Error(ErrorCode::unsupported, fmt::format("{} cannot have {} bytes of device memory: {}", whose,
                                                    wanted, cudaGetErrorString(result)));
  }
  DeviceBytes own(static_cast<std::byte*>(memory));
  check_cuda(cudaMemsetAsync(memory, 0, wanted, stream), "cudaMemsetAsync");
  check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return own;
}

void upload(void* to, const void* from, std::size_t bytes) {
  check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  // Streams that do not synchronize with the default stream do not wait for a copy from pageable memory.
  check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

bool is_done(cudaStream_t stream) {
  const cudaError_t result = cudaStreamQuery(stream);
  if (result != cudaErrorNotReady) {
    check_cuda(result, "cudaStreamQuery");
    return true;
  }
  cudaGetLastError();  // clears cudaErrorNotReady, so that the next launch does not report it
  return false;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void allow_captures_of_others() noexcept {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);  // fails only if every later CUDA call fails too
}

/// Copies piece by piece if a pitch exceeds the device's limit for cudaMemcpy2DAsync (about 2 GiB).
void copy_pieces(std::byte* to, std::size_t to_pitch, const std::byte* from, std::size_t from_pitch,
                 std::size_t bytes, std::size_t pieces, cudaMemcpyKind kind, cudaStream_t stream) {
  int most_pitch = 0;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&most_pitch, cudaDevAttrMaxPitch, device), "cudaDeviceGetAttribute");
  const bool is_one_copy =
      pieces > 1 && std::max(to_pitch, from_pitch) <= static_cast<std::size_t>(most_pitch);
  if (is_one_copy) {
    check_cuda(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, bytes, pieces, kind, stream),
               "cudaMemcpy2DAsync");
    return;
  }
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    check_cuda(cudaMemcpyAsync(to + piece * to_pitch, from + piece * from_pitch, bytes, kind, stream),
               "cudaMemcpyAsync");
  }
}

namespace {

/// The driver's CUresult cuStreamWriteValue64(CUstream, CUdeviceptr, cuuint64_t, unsigned).
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
  value_ = make_pinned<std::uint64_t>();
}

void StreamMark::write(std::uint64_t value, cudaStream_t stream) const {
  constexpr unsigned behind_all_writes = 0;
  const auto address = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(value_.get()));
  const int result = write_value()(stream, address, value, behind_all_writes);
  if (result == 0) return;
  check_cuda(cudaGetLastError(), "cuStreamWriteValue64");  // explains more if the device is lost
  throw Error(ErrorCode::internal, fmt::format("cuStreamWriteValue64 failed with CUresult {}", result));
}

std::uint64_t StreamMark::value() const noexcept { return __atomic_load_n(value_.get(), __ATOMIC_ACQUIRE); }

}  // namespace ddl::device
