#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddl/device/mapped_memory.hpp"

namespace ddl::device {

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
