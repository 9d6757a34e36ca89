// Captures: streams whose work becomes a graph, and the calls that fail during a capture.

#include "device/emulated/emulated_capture.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "device/emulated/emulated_errors.hpp"

namespace emulated_cuda {
namespace {

thread_local cudaStreamCaptureMode own_mode = cudaStreamCaptureModeGlobal;

std::vector<std::shared_ptr<Capture>>& captures() {
  static auto* const all = new std::vector<std::shared_ptr<Capture>>;
  return *all;
}

cudaError_t invalidate(Capture& capture, cudaError_t error) {
  capture.is_valid = false;
  return error;
}

void end(const std::shared_ptr<Capture>& capture) {
  capture->has_ended = true;
  for (const cudaStream_t stream : capture->streams) {
    stream->capture.reset();
    stream->tips.clear();
  }
  std::erase(captures(), capture);
}

/// The tips and all their predecessors.
std::set<std::size_t> before(const Graph& graph, std::vector<std::size_t> tips) {
  std::set<std::size_t> found;
  while (!tips.empty()) {
    const std::size_t node = tips.back();
    tips.pop_back();
    if (!found.insert(node).second) continue;
    tips.insert(tips.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return found;
}

bool is_joined(const Capture& capture) {
  const std::set<std::size_t> joined = before(*capture.graph, capture.origin->tips);
  return std::ranges::all_of(capture.streams, [&](const cudaStream_t stream) {
    return std::ranges::all_of(stream->tips, [&](std::size_t tip) { return joined.contains(tip); });
  });
}

void join(CUstream_st& stream, const std::vector<std::size_t>& tips) {
  for (const std::size_t tip : tips) {
    if (std::ranges::find(stream.tips, tip) == stream.tips.end()) stream.tips.push_back(tip);
  }
}

cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != stream) return invalidate(*capture, cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return invalidate(*capture, cudaErrorStreamCaptureWrongThread);
  const bool was_joined = is_joined(*capture);
  end(capture);
  if (!capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  if (!was_joined) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st{capture->graph};
  return cudaSuccess;
}

}  // namespace

cudaError_t capture_obstacle(const CUstream_st& stream) {
  if (stream.capture) return stream.capture->is_valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
  const Device& device = runtime().devices[static_cast<std::size_t>(stream.device)];
  if (&stream != device.default_stream) return cudaSuccess;
  for (const cudaStream_t other : device.blocking) {
    if (other->capture) return invalidate(*other->capture, cudaErrorStreamCaptureImplicit);
  }
  return cudaSuccess;
}

void capture_work(CUstream_st& stream, Work work) {
  Graph& graph = *stream.capture->graph;
  graph.nodes.push_back({stream.device, stream.number, std::move(work), std::move(stream.tips)});
  stream.tips = {graph.nodes.size() - 1};
}

cudaError_t unsafe_call() {
  if (own_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (const auto& capture : captures()) {
    const bool is_own = capture->thread == std::this_thread::get_id();
    const bool prohibits =
        is_own ? capture->mode != cudaStreamCaptureModeRelaxed
               : capture->mode == cudaStreamCaptureModeGlobal && own_mode == cudaStreamCaptureModeGlobal;
    if (prohibits) error = invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  }
  return error;
}

cudaError_t call_on(const CUstream_st& stream) {
  if (stream.capture) {
    if (!stream.capture->is_valid) return cudaErrorStreamCaptureInvalidated;
    return invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported);
  }
  if (const cudaError_t error = capture_obstacle(stream); error != cudaSuccess) return error;
  return unsafe_call();
}

cudaError_t call_on(const CUevent_st& event) {
  if (event.capture) return invalidate(*event.capture, cudaErrorCapturedEvent);
  return unsafe_call();
}

cudaError_t capture_wait(CUstream_st& stream, const CUevent_st& event) {
  if (!event.capture) {  // recorded outside of captures
    return event.recorded ? invalidate(*stream.capture, cudaErrorStreamCaptureIsolation) : cudaSuccess;
  }
  if (event.capture->has_ended) return cudaErrorCapturedEvent;
  if (!event.capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  if (!stream.capture) {
    const Device& device = runtime().devices[static_cast<std::size_t>(stream.device)];
    if (&stream == device.default_stream) return invalidate(*event.capture, cudaErrorStreamCaptureImplicit);
    stream.capture = event.capture;
    stream.capture->streams.push_back(&stream);
  } else if (stream.capture != event.capture) {
    invalidate(*event.capture, cudaErrorStreamCaptureMerge);
    return invalidate(*stream.capture, cudaErrorStreamCaptureMerge);
  }
  join(stream, event.tips);
  return cudaSuccess;
}

void leave_capture(cudaStream_t stream) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return;
  capture->is_valid = false;
  if (capture->origin == stream) return end(capture);
  std::erase(capture->streams, stream);
}

unsigned long long capture_of(cudaStream_t handle) {
  const Lock lock(runtime().mutex);
  const cudaStream_t stream = stream_of(handle);
  return stream->capture ? stream->capture->number : 0;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  own_mode = std::exchange(*mode, own_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  if (const cudaError_t error = obstacle("cudaStreamBeginCapture"); error != cudaSuccess)
    return result(error);
  static unsigned long long numbers = 0;
  const Lock lock(runtime().mutex);
  const cudaStream_t stream = stream_of(handle);
  const Device& device = runtime().devices[static_cast<std::size_t>(stream->device)];
  if (stream == device.default_stream) return result(cudaErrorStreamCaptureUnsupported);
  if (stream->capture) return result(cudaErrorIllegalState);
  stream->capture =
      std::make_shared<Capture>(Capture{++numbers, mode, std::this_thread::get_id(), stream, {stream}});
  captures().push_back(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  if (const cudaError_t error = obstacle("cudaStreamEndCapture"); error != cudaSuccess) return result(error);
  const Lock lock(runtime().mutex);
  return result(end_capture(stream_of(handle), graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  if (const cudaError_t error = obstacle("cudaStreamIsCapturing"); error != cudaSuccess) return result(error);
  const Lock lock(runtime().mutex);
  const cudaStream_t stream = stream_of(handle);
  const Device& device = runtime().devices[static_cast<std::size_t>(stream->device)];
  *status = cudaStreamCaptureStatusNone;
  if (stream->capture) {
    *status = stream->capture->is_valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
  } else if (stream == device.default_stream && std::ranges::any_of(device.blocking, [](cudaStream_t other) {
               return other->capture != nullptr;
             })) {
    return result(cudaErrorStreamCaptureImplicit);  // does not invalidate the capture
  }
  return cudaSuccess;
}

/// Does not return the graph and the next node's dependencies.
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* number, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                        unsigned long long* number, cudaGraph_t*, const cudaGraphNode_t**,
                                        size_t*) {
#endif
  const cudaError_t error = cudaStreamIsCapturing(stream, status);
  if (error == cudaSuccess && number != nullptr) *number = capture_of(stream);
  return error;
}

}  // extern "C"
