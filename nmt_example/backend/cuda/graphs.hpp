#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/cuda/narrow_parameters.hpp"

namespace nmt::cuda {

/// Records work that is queued on a stream as CUDA graphs, by key, and launches these instead of queueing it
/// again. Keeps up to `most_graphs`, of the groups that were used last, and as many as `most_steps` of work
/// of all ranks, whose graphs are of whole steps. Not thread-safe.
class Graphs {
 public:
  static constexpr std::size_t most_graphs = 1024, most_steps = 128;

  /// Queues `work` on the stream, which must be the same in all calls with the key. Its first time, it is
  /// queued as it is, so that it may allocate what it needs; its second time, it is recorded. `parameters`:
  /// what it takes copies of parameters from.
  void replay(const WorkKey& key, cudaStream_t stream, NarrowParameters& parameters,
              const std::function<void()>& work);
  /// The work that is being queued for the first time is not to be recorded; parts of it may be.
  void leave_out() noexcept {
    if (first_time_ != nullptr) first_time_->is_left_out = true;
  }
  void clear() noexcept {
    own_.clear();
    of_all_ranks_.clear();
  }

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const noexcept { cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<CUgraphExec_st, Destroy>;
  struct Entry {
    Graph graph;                      // null after the first time
    NarrowParameters::Places copies;  // that it uses
    bool is_new = true, is_left_out = false;
  };
  struct Group {
    std::unordered_map<std::uint64_t, Entry> parts;
    std::uint64_t last_use = 0;
  };

  class Pool {
   public:
    explicit Pool(std::size_t most) : most_(most) {}
    Entry& entry_of(const WorkKey& key);
    void clear() noexcept {
      groups_.clear();
      entries_ = 0;
    }

   private:
    std::size_t most_;
    std::unordered_map<std::uint64_t, Group> groups_;
    std::size_t entries_ = 0;  // of all groups
    std::uint64_t uses_ = 0;
  };

  static Graph record(cudaStream_t stream, const std::function<void()>& work);

  Pool own_{most_graphs}, of_all_ranks_{most_steps};
  bool is_inside_ = false;
  Entry* first_time_ = nullptr;  // of the work that is inside, if it is its first time
};

}  // namespace nmt::cuda
