#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "nmt_example/backend/cuda/memory.hpp"

namespace nmt::cuda {

/// What work needs that is queued beside other work: nothing here is shared.
struct Lane {
  Stream stream = make_stream();
  std::shared_ptr<void> workspace = allocate_device(cublas_workspace_bytes, stream.get());
  Cublas cublas = make_cublas(stream.get(), workspace);
  Scratch scratch = {};
  Event reached = make_event();
  /// For work that this lane's begins. So a lane is the same each time that work is queued, as a recorded
  /// graph needs, and is never that of work beside.
  std::vector<std::unique_ptr<Lane>> beside = {};
  std::size_t taken = 0;  ///< Of these, by work that has not joined.
};

/// The lanes of a backend: one that all work ends in, and those that it makes when work first needs them.
/// They wait for each other by events, so the stream's work may be recorded into a graph. Not thread-safe.
class Lanes {
 public:
  /// Of the work that is queued now.
  [[nodiscard]] Lane& current() const noexcept { return *current_; }
  /// In which work is when all has joined.
  [[nodiscard]] cudaStream_t stream() const noexcept { return main_.stream.get(); }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

  /// As `Backend` says.
  void side_by_side(const std::function<void()>& first, const std::function<void()>& second);
  void wavefront(std::size_t layers, std::size_t chunks,
                 const std::function<void(std::size_t, std::size_t)>& work);

 private:
  class Fork;

  Lane main_;
  Lane* current_ = &main_;
  std::size_t count_ = 1;
};

}  // namespace nmt::cuda
