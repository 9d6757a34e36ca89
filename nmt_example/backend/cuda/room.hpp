#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <utility>
#include <vector>

#include "nmt_example/backend/cuda/memory.hpp"
#include "nmt_example/backend/tensor.hpp"

namespace nmt::cuda {

/// Device memory for a call's tensors, which grows to what the largest call takes.
class Room {
 public:
  /// Gives back everything. What is taken from now on is for the stream's work.
  void begin(cudaStream_t stream) noexcept {
    stream_ = stream;
    next_ = 0;
  }
  void* take(std::size_t bytes) {
    if (next_ == blocks_.size()) blocks_.emplace_back();
    auto& [memory, size] = blocks_[next_++];
    if (bytes > size || memory == nullptr) {
      memory.reset();
      memory = allocate_device(bytes, stream_);
      size = bytes;
    }
    return memory.get();
  }
  Tensor take(std::int64_t rows, std::int64_t cols, ddl::DataType type) {
    return {take(static_cast<std::size_t>(rows * cols) * ddl::size_of(type)), rows, cols, cols, type};
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::vector<std::pair<std::shared_ptr<void>, std::size_t>> blocks_;
  std::size_t next_ = 0;
};

}  // namespace nmt::cuda
