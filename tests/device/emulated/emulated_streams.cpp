// Streams and events.

#include <algorithm>
#include <utility>

#include "device/emulated/emulated_capture.hpp"
#include "device/emulated/emulated_errors.hpp"
#include "device/emulated/emulated_runtime.hpp"
#include "device/emulated/emulated_threads.hpp"

using namespace emulated_cuda;

namespace {

constexpr int greatest_priority = -5;

Device& device_of(int number) { return runtime().devices[static_cast<std::size_t>(number)]; }

cudaError_t make_stream(const char* function, cudaStream_t* stream, unsigned flags, int priority) {
  if (const cudaError_t error = obstacle(function); error != cudaSuccess) return result(error);
  Lock lock(runtime().mutex);
  Device& device = device_in_use(current_device());
  if (machine().creation_waits) wait_for_device(current_device(), lock);
  const bool is_urgent = priority < 0;
  auto& queues = is_urgent ? device.urgent_queues : device.queues;
  std::size_t& streams = is_urgent ? device.urgent_streams : device.streams;
  const bool is_blocking = (flags & cudaStreamNonBlocking) == 0;
  *stream = new CUstream_st{current_device(), queues[streams++ % queues.size()], is_blocking, is_urgent,
                            ++runtime().streams};
  if (is_blocking) device.blocking.push_back(*stream);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = greatest_priority;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return make_stream("cudaStreamCreateWithFlags", stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return make_stream("cudaStreamCreate", stream, 0, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return make_stream("cudaStreamCreateWithPriority", stream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Lock lock(runtime().mutex);
  Device& device = device_of(stream->device);
  leave_capture(stream);
  std::erase(device.blocking, stream);
  const cudaError_t fault = device.fault;
  delete stream;  // its work continues
  return result(fault);
}

/// Stores cudaErrorNotReady for cudaGetLastError, like CUDA.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  if (const cudaError_t error = obstacle("cudaStreamQuery"); error != cudaSuccess) return result(error);
  Lock lock(runtime().mutex);
  const cudaStream_t stream = stream_of(handle);
  if (const cudaError_t error = call_on(*stream); error != cudaSuccess) return result(error);
  if (const cudaError_t error = device_of(stream->device).fault; error != cudaSuccess) return result(error);
  let_begin();
  return !stream->last || stream->last->is_done ? cudaSuccess : result(cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  if (const cudaError_t error = obstacle("cudaStreamSynchronize"); error != cudaSuccess) return result(error);
  Lock lock(runtime().mutex);
  const cudaStream_t stream = stream_of(handle);
  if (const cudaError_t error = call_on(*stream); error != cudaSuccess) return result(error);
  const int device = stream->device;
  if (const CommandPointer last = stream->last; last) wait_for(*last, lock);
  return result(device_of(device).fault);
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = obstacle("cudaDeviceSynchronize"); error != cudaSuccess) return result(error);
  Lock lock(runtime().mutex);
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return result(error);
  wait_for_device(current_device(), lock);
  return result(device_of(current_device()).fault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int) {
  if (const cudaError_t error = obstacle("cudaStreamWaitEvent"); error != cudaSuccess) return result(error);
  cudaStream_t stream = nullptr;
  CommandPointer recorded;
  {
    const Lock lock(runtime().mutex);
    stream = stream_of(handle);
    if (const cudaError_t error = capture_obstacle(*stream); error != cudaSuccess) return result(error);
    if (stream->capture || event->capture) return result(capture_wait(*stream, *event));
    recorded = event->recorded;
  }
  if (recorded) submit(stream, Mark{}, {recorded});
  return cudaSuccess;
}

/// One thread runs all host functions of a process; they must not call CUDA.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return enqueue("cudaLaunchHostFunc", stream, HostCall{function, data});
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  if (const cudaError_t error = obstacle("cudaEventCreateWithFlags"); error != cudaSuccess)
    return result(error);
  Lock lock(runtime().mutex);
  if (machine().creation_waits) wait_for_device(current_device(), lock);
  *event = new CUevent_st{current_device()};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(runtime().mutex);
  const cudaError_t fault = device_of(event->device).fault;
  delete event;
  return result(fault);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  if (const cudaError_t error = obstacle("cudaEventRecord"); error != cudaSuccess) return result(error);
  cudaStream_t stream = nullptr;
  {
    const Lock lock(runtime().mutex);
    stream = stream_of(handle);
    if (stream->device != event->device) return result(cudaErrorInvalidResourceHandle);
    if (const cudaError_t error = capture_obstacle(*stream); error != cudaSuccess) return result(error);
    if (stream->capture) {
      event->recorded = nullptr;
      event->capture = stream->capture;
      event->tips = stream->tips;
      return cudaSuccess;
    }
  }
  CommandPointer command = submit(stream, Mark{});
  const Lock lock(runtime().mutex);
  event->recorded = std::move(command);
  event->capture = nullptr;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = obstacle("cudaEventQuery"); error != cudaSuccess) return result(error);
  const Lock lock(runtime().mutex);
  if (const cudaError_t error = call_on(*event); error != cudaSuccess) return result(error);
  if (const cudaError_t error = device_of(event->device).fault; error != cudaSuccess) return result(error);
  let_begin();
  return !event->recorded || event->recorded->is_done ? cudaSuccess : result(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = obstacle("cudaEventSynchronize"); error != cudaSuccess) return result(error);
  Lock lock(runtime().mutex);
  if (const cudaError_t error = call_on(*event); error != cudaSuccess) return result(error);
  const int device = event->device;
  if (const CommandPointer recorded = event->recorded; recorded) wait_for(*recorded, lock);
  return result(device_of(device).fault);
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock(runtime().mutex);
  if (begin->capture || end->capture) return result(cudaErrorCapturedEvent);
  if (!begin->recorded || !end->recorded) return result(cudaErrorInvalidResourceHandle);
  if (!begin->recorded->is_done || !end->recorded->is_done) return result(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(end->recorded->done_at - begin->recorded->done_at).count();
  return cudaSuccess;
}

}  // extern "C"
