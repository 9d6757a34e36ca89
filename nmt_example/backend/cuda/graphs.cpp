#include "nmt_example/backend/cuda/graphs.hpp"

#include <exception>

#include "nmt_example/backend/cuda/check.hpp"

namespace nmt::cuda {
namespace {

/// More shapes than a run has, unless it translates texts of all lengths; then the graphs start anew.
constexpr std::size_t most_graphs = 1024;

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

void Graphs::replay(std::uint64_t key, cudaStream_t stream, const std::function<void()>& work) {
  if (records_) return work();  // a part of what is being recorded
  if (graphs_.size() >= most_graphs && !graphs_.contains(key)) {
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    graphs_.clear();
  }
  const auto [place, is_new] = graphs_.try_emplace(key);
  if (is_new) return work();
  if (place->second == nullptr) {
    records_ = true;
    try {
      place->second = record(stream, work);
    } catch (...) {
      records_ = false;
      throw;
    }
    records_ = false;
  }
  check(cudaGraphLaunch(place->second.get(), stream), "cudaGraphLaunch");
}

}  // namespace nmt::cuda
