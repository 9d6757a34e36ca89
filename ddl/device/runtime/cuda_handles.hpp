#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "ddl/cuda_check.hpp"

namespace ddl::device {

struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
using Stream = std::unique_ptr<CUstream_st, DestroyStream>;
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;

struct FreeOnDevice {
  void operator()(std::byte* memory) const noexcept { cudaFree(memory); }
};
using DeviceBytes = std::unique_ptr<std::byte, FreeOnDevice>;
/// Zeros on the device that is selected; waits for `stream`, on which they are written. Throws `unsupported`
/// if it has no more: "`whose` cannot have 64 bytes of device memory: ...".
DeviceBytes allocate_on_device(std::size_t bytes, const std::string& whose, cudaStream_t stream = nullptr);

struct FreePinned {
  void operator()(std::byte* memory) const noexcept { cudaFreeHost(memory); }
};
/// Page-locked memory of the host.
using PinnedBytes = std::unique_ptr<std::byte, FreePinned>;
PinnedBytes allocate_pinned(std::size_t bytes);

enum class Priority { usual, urgent };
/// That no default stream orders itself with; urgent ones go before others where devices have priorities.
/// Throws `internal`, as `make_event`.
Stream make_stream(Priority priority = Priority::usual);
/// Without the time when it passes, unless the flags are cudaEventDefault.
Event make_event(unsigned flags = cudaEventDisableTiming);
/// What is queued on `then` from now on waits for what is queued on `first`. The event may be recorded again
/// at once: who waits for it waits for what it held by then.
void join(cudaStream_t first, cudaStream_t then, const Event& event);
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

/// A value in page-locked memory of the host that the device reaches.
template <typename T>
class MappedMemory {
 public:
  MappedMemory() = default;
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory() {
    if (host_ != nullptr) cudaFreeHost(host_);
  }

  /// T(). Once. Throws `internal`.
  void allocate() {
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable),
               "cudaHostAlloc");
    host_ = new (memory) T();
    void* seen = nullptr;
    check_cuda(cudaHostGetDevicePointer(&seen, memory, 0), "cudaHostGetDevicePointer");
    device_ = static_cast<T*>(seen);
  }
  /// It is never given back: a kernel may still write to it.
  void abandon() noexcept { host_ = nullptr; }

  [[nodiscard]] T* host() const noexcept { return host_; }
  [[nodiscard]] T* device() const noexcept { return device_; }

 private:
  T* host_ = nullptr;
  T* device_ = nullptr;
};

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
  /// See MappedMemory.
  void abandon() noexcept { value_.abandon(); }

 private:
  MappedMemory<std::uint64_t> value_;
};

}  // namespace ddl::device
