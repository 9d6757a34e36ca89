#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/gradient_reducer.hpp"
#include "device/device_cases.hpp"
#include "device/device_fixture.hpp"
#include "support/thrown_error.hpp"

namespace ddl::test {

/// The options with a device for this rank, which is selected in its thread.
inline DeviceOptions on_own_device(const Context& context, DeviceOptions options) {
  int devices = 0;
  EXPECT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  options.device = context.rank() % devices;
  EXPECT_EQ(cudaSetDevice(options.device), cudaSuccess);
  return options;
}

/// A graph of what `queue` queues on the stream.
class Graph {
 public:
  Graph(cudaStream_t stream, const std::function<void()>& queue) {
    // A global capture would prohibit calls of the other ranks, which are threads of this process.
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    queue();
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph_), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphUpload(executable_, stream),
              cudaSuccess);  // allocates, so not while kernels of other ranks wait
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  void launch(cudaStream_t stream) const { EXPECT_EQ(cudaGraphLaunch(executable_, stream), cudaSuccess); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

/// A rank that takes steps of three gradients, whose values and weight come from page-locked memory.
class Steps {
 public:
  static constexpr std::size_t sizes[] = {100'003, 7, 50'000};
  static constexpr std::size_t elements = 150'010;

  Steps(Context& context, const DeviceOptions& options, GradientReducerOptions how)
      : context_(context), device_(context, options), weight_(std::vector<std::byte>(sizeof(double))) {
    EXPECT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&inputs_), (elements + 2) * sizeof(float), 0),
              cudaSuccess);
    values_ = reinterpret_cast<float*>(device_.allocate(elements * sizeof(float)).data);
    std::vector<Gradient> gradients;
    for (std::size_t g = 0, at = 0; g < std::size(sizes); at += sizes[g++]) {
      gradients.push_back({"g" + std::to_string(g), {values_ + at, sizes[g]}});
      parameters_.push_back({gradients.back().name, gradients.back().values});
    }
    how.bucket_bytes = 100'000;
    reducer_.emplace(device_, gradients, how);
  }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps() {
    reducer_.reset();
    device_.release(stream_);
    cudaFreeHost(inputs_);
  }

  /// The inputs of step `number`; no work that reads them may be queued.
  void set(int number) {
    std::mt19937 random(static_cast<unsigned>(100 * number + context_.rank()));
    std::uniform_real_distribution<float> any(-1, 1);
    std::generate_n(inputs_, elements, [&] { return any(random); });
    set_weight(number + 0.5 * context_.rank());
  }
  void set_weight(double weight) { std::memcpy(inputs_ + elements, &weight, sizeof weight); }
  /// Queues a step.
  void queue() {
    cudaMemcpyAsync(weight_.data(), inputs_ + elements, sizeof(double), cudaMemcpyHostToDevice, stream_);
    cudaMemcpyAsync(values_, inputs_, elements * sizeof(float), cudaMemcpyHostToDevice, stream_);
    for (std::size_t g = std::size(sizes); g-- > 0;) reducer_->ready(g, stream_);
    reducer_->finish(DeviceWeight{reinterpret_cast<const double*>(weight_.data())}, stream_);
    if (!reducer_->shards().empty()) reducer_->gather(parameters_, stream_);
  }
  /// What the last step left, once it is over: all gradients, and the weight and norm that all ranks have.
  std::vector<float> result(bool launched) {
    const ReducedStep step = launched ? reducer_->result(stream_) : reducer_->result();
    EXPECT_TRUE(step.finite);
    std::vector<float> all(elements);
    cudaMemcpyAsync(all.data(), values_, elements * sizeof(float), cudaMemcpyDeviceToHost, stream_);
    cudaStreamSynchronize(stream_);
    all.push_back(static_cast<float>(step.weight));
    all.push_back(static_cast<float>(step.norm));
    return all;
  }

  [[nodiscard]] GradientReducer& reducer() { return *reducer_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

 private:
  Context& context_;
  DeviceCommunicator device_;
  const Stream stream_;
  const OnDevice weight_;
  float* inputs_ = nullptr;  // and the weight
  float* values_ = nullptr;
  std::vector<Parameter> parameters_;
  std::optional<GradientReducer> reducer_;
};

/// Queues the first and the fifth of some steps, and captures one that it launches for the others. Without
/// `captures`, it queues all of them. Returns their results.
inline std::vector<std::vector<float>> results_of(Context& context, const DeviceOptions& options,
                                                  const GradientReducerOptions& how, bool captures) {
  Steps steps(context, options, how);
  EXPECT_FALSE(steps.reducer().can_be_captured()) << "the first step has not been taken";
  std::optional<Graph> graph;
  std::vector<std::vector<float>> results;
  int step = 0;
  for (const int repetitions : {1, 1, 1, 3, 1, 1}) {
    ++step;
    steps.set(step);
    const bool launches = graph && step != 5;
    for (int i = 0; i < repetitions; ++i) launches ? graph->launch(steps.stream()) : steps.queue();
    results.push_back(steps.result(launches));
    EXPECT_TRUE(steps.reducer().can_be_captured());
    context.communicator().barrier();
    if (captures && !graph) graph.emplace(steps.stream(), [&] { steps.queue(); });
    context.communicator().barrier();
  }
  if (graph) {
    if (context.rank() == 0) steps.set_weight(-1);
    graph->launch(steps.stream());
    EXPECT_EQ(error_of([&] { steps.reducer().result(steps.stream()); }).code(), ErrorCode::invalid_argument)
        << "a weight below 0";
    context.communicator().barrier();
  }
  return results;
}

/// Steps in a graph have the bits of steps that are queued.
inline void reduce_in_graphs(int ranks, const DeviceOptions& options, const InProcessOptions& in_process = {},
                             const GradientReducerOptions& how = {.gradients = GradientKind::sum}) {
  run_in_process(
      ranks,
      [&](Context& context) {
        const DeviceOptions own = on_own_device(context, options);
        const auto wanted = results_of(context, own, how, false);
        const auto found = results_of(context, own, how, true);
        for (std::size_t i = 0; i < wanted.size(); ++i)
          EXPECT_TRUE(found[i] == wanted[i]) << "step " << i + 1;
      },
      in_process);
}

}  // namespace ddl::test
