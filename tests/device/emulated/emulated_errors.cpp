// Errors. A call's error is kept for its thread until it is queried; a device's fault stays.

#include "device/emulated/emulated_errors.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "device/emulated/emulated_runtime.hpp"
#include "device/emulated/emulated_threads.hpp"

namespace emulated_cuda {
namespace {

thread_local int chosen_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

struct Words {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr Words known[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

Words words_of(cudaError_t error) {
  const auto found = std::ranges::find(known, error, &Words::error);
  return found != std::end(known) ? *found : Words{error, "an emulated error", "an emulated error"};
}

Device& device(int number) { return runtime().devices[static_cast<std::size_t>(number)]; }

}  // namespace

int current_device() { return chosen_device; }

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t obstacle(const char* function) {
  if (machine().driver < CUDART_VERSION) return cudaErrorInsufficientDriver;
  if (machine().devices == 0) return cudaErrorNoDevice;
  if (is_in_host_function()) return cudaErrorNotPermitted;
  if (machine().refused == function) return cudaErrorUnknown;
  return device(chosen_device).fault;
}

void fault(int number, cudaError_t error) {
  const Lock lock(runtime().mutex);
  cudaError_t none = cudaSuccess;
  device(number).fault.compare_exchange_strong(none, error);
  start_blocks(number);  // completes kernels of which no block is running
  advance();
}

void lose_device(int number) { fault(number, cudaErrorLaunchFailure); }

bool is_lost(int number) { return device(number).fault != cudaSuccess; }

void restore_devices() {
  Lock lock(runtime().mutex);
  for (Device& each : runtime().devices) {
    runtime().changed.wait(lock, [&] { return each.unfinished.empty(); });
    each.fault = cudaSuccess;
    each.queues.clear();
    each.urgent_queues.clear();
    each.urgent_streams = 0;
    each.loaded.clear();
    delete std::exchange(each.default_stream, nullptr);
    each.is_in_use = false;
  }
}

}  // namespace emulated_cuda

using emulated_cuda::result;

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = emulated_cuda::chosen_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= emulated_cuda::machine().devices) return result(cudaErrorInvalidDevice);
  emulated_cuda::chosen_device = device;
  return result(emulated_cuda::obstacle("cudaSetDevice"));
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t fault = emulated_cuda::device(emulated_cuda::chosen_device).fault;
  return fault != cudaSuccess ? fault : emulated_cuda::last_error;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  emulated_cuda::last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) { return emulated_cuda::words_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return emulated_cuda::words_of(error).text; }

}  // extern "C"
