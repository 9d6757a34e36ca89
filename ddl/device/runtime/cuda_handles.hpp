#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/device/cuda_check.hpp"

namespace ddl::device {

/// CUDA_DEVICE_MAX_CONNECTIONS, the number of a device's hardware queues: the maximum; the default is 8.
inline constexpr int most_connections = 32;
/// CUDA_MODULE_LOADING: loads kernels when CUDA starts; loading on first launch waits for running kernels.
inline constexpr const char* eager = "EAGER";

/// Whether both environment variables have these values.
bool has_cuda_environment() noexcept;

template <auto destroy>
struct Destroy {
  void operator()(auto* handle) const noexcept { destroy(handle); }
};
using Stream = std::unique_ptr<CUstream_st, Destroy<cudaStreamDestroy>>;
using Event = std::unique_ptr<CUevent_st, Destroy<cudaEventDestroy>>;
using DeviceBytes = std::unique_ptr<std::byte, Destroy<cudaFree>>;
/// Allocates zeroed memory on the selected device. Writes the zeros on `stream` and waits for it. Throws
/// `unsupported` if the allocation fails: "`whose` cannot have 64 bytes of device memory: ...".
DeviceBytes allocate_on_device(std::size_t bytes, const std::string& whose, cudaStream_t stream = nullptr);

/// Copies host memory to the device. Returns when it is there, for all streams; cudaMemcpy may return before.
void upload(void* to, const void* from, std::size_t bytes);

/// Page-locked host memory, which devices reach at the same address.
template <typename T>
using Pinned = std::unique_ptr<T, Destroy<cudaFreeHost>>;
/// Allocates `count` value-initialized elements. Throws `internal`.
template <typename T>
Pinned<T> make_pinned(std::size_t count = 1) {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable),
             "cudaHostAlloc");
  std::uninitialized_value_construct_n(static_cast<T*>(memory), count);
  return Pinned<T>(static_cast<T*>(memory));
}

enum class Priority { usual, urgent };
/// Creates a stream that does not synchronize with the default streams. Urgent streams have the highest
/// priority of the device. Throws `internal`.
Stream make_stream(Priority priority = Priority::usual);
/// Creates an event; only the flags cudaEventDefault give one with timing. Throws `internal`.
Event make_event(unsigned flags = cudaEventDisableTiming);
/// Lets work that is queued on `then` from now on wait for the work queued on `first` so far. The event may
/// be recorded again at once: the wait is for the work that it stands for now.
void join(cudaStream_t first, cudaStream_t then, const Event& event);
/// Whether all queued work is complete. Throws `internal` with CUDA's message if the device is lost.
bool is_done(cudaStream_t stream);
/// Whether the stream is being captured. Throws `internal`.
bool is_capturing(cudaStream_t stream);
/// Lets the calling thread, one of the library's, call CUDA without invalidating captures of other threads.
void allow_captures_of_others() noexcept;
/// Copies `pieces` pieces of `bytes` bytes each, which begin `to_pitch` and `from_pitch` bytes apart.
void copy_pieces(std::byte* to, std::size_t to_pitch, const std::byte* from, std::size_t from_pitch,
                 std::size_t bytes, std::size_t pieces, cudaMemcpyKind kind, cudaStream_t stream);

/// Tracks the progress of streams: the device writes a number to host memory when a stream reaches a mark
/// (cuStreamWriteValue64). Reading it does not call CUDA, so it works during a capture, during a launch that
/// blocks and on a lost device. Unlike with events, nothing is created while kernels wait.
class StreamMark {
 public:
  StreamMark() = default;

  /// Must be called once; the value is 0. Throws `internal`, or `unsupported` if the driver is too old.
  void allocate();
  /// Queues the write of `value` on the stream. Values must increase in the order of the streams' execution.
  void write(std::uint64_t value, cudaStream_t stream) const;
  /// The last value written. The work queued before it is complete and visible. Thread-safe.
  [[nodiscard]] std::uint64_t value() const noexcept;
  /// Leaks the memory, because the device may still write to it.
  void abandon() noexcept { value_.release(); }

 private:
  Pinned<std::uint64_t> value_;
};

}  // namespace ddl::device
