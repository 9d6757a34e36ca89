#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
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
/// With the time when it passes.
Event make_timed_event();
/// Throws `internal` with what CUDA says if the stream's device is lost. Does not wait.
void require_alive(cudaStream_t stream);
/// Whether what is queued on the stream now runs later, or often, or never. Throws `internal`.
bool is_capturing(cudaStream_t stream);
/// From now on nothing that the calling thread asks of CUDA spoils what other threads capture. For threads of
/// the library.
void allow_captures_of_others() noexcept;
/// Copies `pieces` of `bytes` each, which begin so many bytes apart.
void copy_pieces(std::byte* to, std::size_t to_pitch, const std::byte* from, std::size_t from_pitch,
                 std::size_t bytes, std::size_t pieces, cudaMemcpyKind kind, cudaStream_t stream);

}  // namespace ddl::device
