#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "nmt_example/backend/cuda/narrow_parameters.hpp"

namespace nmt::cuda {

/// Records work that is queued on a stream as CUDA graphs, by key, and launches these instead of queueing it
/// again. Keeps the `most_graphs` that were used last. Not thread-safe.
class Graphs {
 public:
  static constexpr std::size_t most_graphs = 1024;

  /// Queues `work` on the stream, which must be the same in all calls. Its first time, it is queued as it is,
  /// so that it may allocate what it needs; its second time, it is recorded. `parameters`: what it takes
  /// copies of parameters from.
  void replay(std::uint64_t key, cudaStream_t stream, NarrowParameters& parameters,
              const std::function<void()>& work);

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const noexcept { cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<CUgraphExec_st, Destroy>;
  struct Entry {
    Graph graph;                      // null after the first time
    NarrowParameters::Places copies;  // that it uses
    std::uint64_t last_use = 0;
  };

  static Graph record(cudaStream_t stream, const std::function<void()>& work);
  Entry& entry_of(std::uint64_t key);

  std::unordered_map<std::uint64_t, Entry> entries_;
  std::uint64_t uses_ = 0;
  bool is_inside_ = false;
};

}  // namespace nmt::cuda
