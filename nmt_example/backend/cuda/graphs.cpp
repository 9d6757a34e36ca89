#include "nmt_example/backend/cuda/graphs.hpp"

#include <algorithm>
#include <exception>

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

Graphs::Entry& Graphs::entry_of(std::uint64_t key) {
  if (entries_.size() >= most_graphs && !entries_.contains(key)) {
    // CUDA keeps a graph that is destroyed while it runs.
    entries_.erase(
        std::ranges::min_element(entries_, {}, [](const auto& keyed) { return keyed.second.last_use; }));
  }
  return entries_[key];
}

void Graphs::replay(std::uint64_t key, cudaStream_t stream, NarrowParameters& parameters,
                    const std::function<void()>& work) {
  if (is_inside_) return work();  // a part of other work
  Entry& entry = entry_of(key);
  const bool is_first = entry.last_use == 0;
  entry.last_use = ++uses_;
  is_inside_ = true;
  try {
    parameters.with_copies_of(entry.copies, stream, [&] {
      if (is_first) return work();
      if (entry.graph == nullptr) entry.graph = record(stream, work);
      check(cudaGraphLaunch(entry.graph.get(), stream), "cudaGraphLaunch");
    });
  } catch (...) {
    is_inside_ = false;
    throw;
  }
  is_inside_ = false;
}

}  // namespace nmt::cuda
