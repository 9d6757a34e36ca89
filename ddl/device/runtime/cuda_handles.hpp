#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ddl/cuda_check.hpp"

namespace ddl::device {

template <auto destroy>
struct Destroy {
  void operator()(auto* handle) const noexcept { destroy(handle); }
};
using Stream = std::unique_ptr<CUstream_st, Destroy<cudaStreamDestroy>>;
using Event = std::unique_ptr<CUevent_st, Destroy<cudaEventDestroy>>;
using DeviceBytes = std::unique_ptr<std::byte, Destroy<cudaFree>>;
/// Zeros on the device that is selected; waits for `stream`, on which they are written. Throws `unsupported`
/// if it has no more: "`whose` cannot have 64 bytes of device memory: ...".
DeviceBytes allocate_on_device(std::size_t bytes, const std::string& whose, cudaStream_t stream = nullptr);

/// Page-locked memory of the host, which devices reach at the same address.
template <typename T>
using Pinned = std::unique_ptr<T, Destroy<cudaFreeHost>>;
/// `count` of T(). Throws `internal`.
template <typename T>
Pinned<T> make_pinned(std::size_t count = 1) {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable),
             "cudaHostAlloc");
  std::uninitialized_value_construct_n(static_cast<T*>(memory), count);
  return Pinned<T>(static_cast<T*>(memory));
}

enum class Priority { usual, urgent };
/// That no default stream orders itself with; urgent ones go before others where devices have priorities.
/// Throws `internal`, as `make_event`.
Stream make_stream(Priority priority = Priority::usual);
/// Without the time when it passes, unless the flags are cudaEventDefault.
Event make_event(unsigned flags = cudaEventDisableTiming);
/// What is queued on `then` from now on waits for what is queued on `first`. The event may be recorded again
/// at once: who waits for it waits for what it held by then.
void join(cudaStream_t first, cudaStream_t then, const Event& event);
/// Whether all that is queued is done. Throws `internal` with what CUDA says if the stream's device is lost.
bool is_done(cudaStream_t stream);
/// Whether what is queued on the stream now runs later, or often, or never. Throws `internal`.
bool is_capturing(cudaStream_t stream);
/// From now on nothing that the calling thread asks of CUDA spoils what other threads capture. For threads of
/// the library.
void allow_captures_of_others() noexcept;
/// Copies `pieces` of `bytes` each, which begin so many bytes apart.
void copy_pieces(std::byte* to, std::size_t to_pitch, const std::byte* from, std::size_t from_pitch,
                 std::size_t bytes, std::size_t pieces, cudaMemcpyKind kind, cudaStream_t stream);

/// How far streams have come: a number that the device writes to the host's memory when a stream comes to it
/// (cuStreamWriteValue64). Reading it calls nothing of CUDA's, so it works beside a capture, a launch that
/// blocks and a device that is lost, and nothing is created while kernels wait, as events would be.
class StreamMark {
 public:
  StreamMark() = default;

  /// 0. Once. Throws `internal`, or `unsupported` where the driver has no such function.
  void allocate();
  /// `value` is written behind what is queued on the stream. Values grow in the streams' order.
  void write(std::uint64_t value, cudaStream_t stream) const;
  /// The last value that has been written. What was queued before it is done, and visible. Any thread.
  [[nodiscard]] std::uint64_t value() const noexcept;
  /// Its memory is never given back: the device may still write to it.
  void abandon() noexcept { value_.release(); }

 private:
  Pinned<std::uint64_t> value_;
};

}  // namespace ddl::device
