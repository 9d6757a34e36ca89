#include "nmt_example/backend/cuda/graphs.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "nmt_example/backend/cuda/check.hpp"

namespace nmt::cuda {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
};

}  // namespace

Graphs::Graph Graphs::record(cudaStream_t stream, const std::function<void()>& work) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  const std::unique_ptr<CUgraph_st, DestroyGraph> graph(captured);
  if (failure != nullptr) std::rethrow_exception(failure);
  check(ended, "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, captured, 0), "cudaGraphInstantiate");
  return Graph(executable);
}

Graphs::Entry& Graphs::Pool::entry_of(const WorkKey& key) {
  Group& group = groups_[key.group];
  group.last_use = ++uses_;
  if (!group.parts.contains(key.part)) {
    // CUDA keeps a graph that is destroyed while it runs.
    while (entries_ >= most_ && groups_.size() > 1) {
      const auto oldest =
          std::ranges::min_element(groups_, {}, [](const auto& keyed) { return keyed.second.last_use; });
      entries_ -= oldest->second.parts.size();
      groups_.erase(oldest);
    }
    ++entries_;
  }
  return group.parts[key.part];
}

void Graphs::replay(const WorkKey& key, cudaStream_t stream, NarrowParameters& parameters,
                    const std::function<void()>& work) {
  if (is_inside_) return work();  // a part of other work
  Entry& entry = (key.of_all_ranks ? of_all_ranks_ : own_).entry_of(key);
  if (entry.is_left_out) return work();
  const bool is_first = std::exchange(entry.is_new, false);
  is_inside_ = true;
  first_time_ = is_first ? &entry : nullptr;
  try {
    parameters.with_copies_of(entry.copies, stream, [&] {
      if (is_first) return work();
      if (entry.graph == nullptr) entry.graph = record(stream, work);
      check(cudaGraphLaunch(entry.graph.get(), stream), "cudaGraphLaunch");
    });
  } catch (...) {
    is_inside_ = false;
    first_time_ = nullptr;
    throw;
  }
  is_inside_ = false;
  first_time_ = nullptr;
}

}  // namespace nmt::cuda
