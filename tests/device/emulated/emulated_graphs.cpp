// Graphs: replays of captured work.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "device/emulated/emulated_errors.hpp"
#include "device/emulated/emulated_runtime.hpp"

struct CUgraphExec_st {
  std::shared_ptr<const emulated_cuda::Graph> graph;
  emulated_cuda::CommandPointer last = nullptr;  ///< A graph that can run runs once at a time.
  bool is_uploaded = false;
};

namespace emulated_cuda {
namespace {

/// One run of a graph.
class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(std::shared_ptr<const Graph> graph, std::function<void()> completed)
      : graph_(std::move(graph)), completed_(std::move(completed)), left_(graph_->nodes.size()) {
    next_.resize(left_);
    for (std::size_t node = 0; node < left_; ++node) {
      missing_.push_back(graph_->nodes[node].after.size());
      for (const std::size_t before : graph_->nodes[node].after) next_[before].push_back(node);
    }
  }

  void start() {
    if (graph_->nodes.empty()) return completed_();
    for (std::size_t node = 0; node < graph_->nodes.size(); ++node) {
      if (graph_->nodes[node].after.empty()) ready_.push_back(node);
    }
    start_ready();
  }

 private:
  void start_ready() {
    if (machine().turns == Turns::all) {
      for (const std::size_t node : std::exchange(ready_, {})) start(node);
      return;
    }
    const auto next = std::ranges::min_element(ready_, is_before,
                                               [&](std::size_t node) { return graph_->nodes[node].stream; });
    const std::size_t node = *next;
    ready_.erase(next);
    start(node);
  }
  void start(std::size_t node) {
    const Graph::Node& started = graph_->nodes[node];
    emulated_cuda::start(started.device, started.work, [own = shared_from_this(), node] { own->end(node); });
  }
  void end(std::size_t node) {
    for (const std::size_t next : next_[node]) {
      if (--missing_[next] == 0) ready_.push_back(next);
    }
    if (--left_ == 0) return completed_();
    if (!ready_.empty()) start_ready();
  }

  std::shared_ptr<const Graph> graph_;
  std::function<void()> completed_;
  std::size_t left_;
  std::vector<std::size_t> ready_;              // nodes that may start
  std::vector<std::size_t> missing_;            // by node: number of incomplete predecessors
  std::vector<std::vector<std::size_t>> next_;  // by node: successors
};

}  // namespace

void start_replay(const Replay& replay, std::function<void()> completed) {
  std::make_shared<Run>(replay.graph, std::move(completed))->start();
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t error = obstacle("cudaGraphInstantiate"); error != cudaSuccess) return result(error);
  *executable = new CUgraphExec_st{std::make_shared<const Graph>(*graph->graph)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes != nullptr) return result(cudaErrorNotSupported);
  *count = graph->graph->nodes.size();
  return cudaSuccess;
}

/// Uploads once, which allocates the graph's device memory.
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t) {
  if (const cudaError_t error = obstacle("cudaGraphUpload"); error != cudaSuccess) return result(error);
  if (std::exchange(executable->is_uploaded, true)) return cudaSuccess;
  Lock lock(runtime().mutex);
  wait_for_device(current_device(), lock);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const cudaError_t error = cudaGraphUpload(executable, stream); error != cudaSuccess) return error;
  CommandPointer made;
  const cudaError_t error =
      enqueue("cudaGraphLaunch", stream, Replay{executable->graph}, {executable->last}, &made);
  if (made) executable->last = std::move(made);
  return error;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return result(obstacle("cudaGraphExecDestroy"));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return result(obstacle("cudaGraphDestroy"));
}

}  // extern "C"
