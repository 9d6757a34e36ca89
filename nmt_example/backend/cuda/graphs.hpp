#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

namespace nmt::cuda {

/// Records work that is queued on a stream as CUDA graphs, by key, and launches these instead of queueing it
/// again. Not thread-safe.
class Graphs {
 public:
  /// Queues `work` on the stream, which must be the same in all calls. Its first time, it is queued as it is,
  /// so that it may allocate what it needs; its second time, it is recorded.
  void replay(std::uint64_t key, cudaStream_t stream, const std::function<void()>& work);

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const noexcept { cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<CUgraphExec_st, Destroy>;

  static Graph record(cudaStream_t stream, const std::function<void()>& work);

  std::unordered_map<std::uint64_t, Graph> graphs_;  // null after the first time
  bool records_ = false;
};

}  // namespace nmt::cuda
