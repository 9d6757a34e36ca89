#pragma once

#include <cuda_runtime_api.h>

#include <memory>

namespace ddl::device {

struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
using Stream = std::unique_ptr<CUstream_st, DestroyStream>;
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;

/// That no default stream orders itself with. Throws `internal`, as `make_event`.
Stream make_stream();
/// The same, before others where devices have priorities.
Stream make_urgent_stream();
/// Without a time.
Event make_event();
/// Whether what it was recorded behind is done. Throws `internal` with what CUDA says.
bool has_come(cudaEvent_t event);

}  // namespace ddl::device
