// Collectives and steps of gradients in captured graphs: each launch counts as a call among others.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/gradient_reducer.hpp"
#include "device/device_cases.hpp"
#include "device/device_fixture.hpp"
#include "device/device_plan_jobs.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::Device;
using test::OnDevice;
using test::Stream;

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

std::vector<std::byte> ones(std::size_t count) {
  std::vector<std::byte> bytes;
  const double one = 1;
  for (std::size_t i = 0; i < count; ++i) {
    const auto* const begin = reinterpret_cast<const std::byte*>(&one);
    bytes.insert(bytes.end(), begin, begin + sizeof one);
  }
  return bytes;
}

/// Each all_reduce, replayed or not, starts with the result of the previous one.
void replay(int ranks, const DeviceOptions& options, const InProcessOptions& in_process = {}) {
  run_in_process(
      ranks,
      [&](Context& context) {
        int devices = 0;
        ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
        DeviceOptions own = options;
        own.device = context.rank() % devices;
        ASSERT_EQ(cudaSetDevice(own.device), cudaSuccess);
        const Stream stream;
        DeviceCommunicator device(context, own);
        for (const std::size_t count : {1'000, 300'000}) {
          const OnDevice values(ones(count));
          const auto all_reduce = [&] {
            device.all_reduce(values.data(), values.data(), count, DataType::f64, ReduceOp::sum, stream);
          };
          context.communicator().barrier();
          const Graph graph(stream, all_reduce);
          context.communicator().barrier();
          double wanted = 1;
          const auto once = [&](const std::function<void()>& queue) {
            queue();
            wanted *= ranks;
          };
          for (int round = 0; round < 3; ++round) {
            once([&] { graph.launch(stream); });
            once([&] { graph.launch(stream); });
            once(all_reduce);
          }
          device.wait(stream);
          const std::vector<std::byte> bytes = values.bytes();
          const auto* const found = reinterpret_cast<const double*>(bytes.data());
          EXPECT_EQ(std::vector<double>(found, found + count), std::vector<double>(count, wanted));
          context.communicator().barrier();
        }
        device.release(stream);
      },
      in_process);
}

/// Skips the test if there is no NCCL.
void by_nccl(const std::function<void(int ranks, const DeviceOptions& options)>& run) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  try {
    run(devices < 2 ? 1 : 2, {.path = DevicePathChoice::nccl});
  } catch (const Error& error) {
    if (std::string(error.what()).find("libnccl.so.2") == std::string::npos) throw;
    GTEST_SKIP() << error.what();
  }
}

class DeviceGraph : public Device {};

TEST_F(DeviceGraph, ReplaysOfTheExchange) { replay(3, {.path = DevicePathChoice::exchange}); }

TEST_F(DeviceGraph, ReplaysOfReproducibleReductions) {
  InProcessOptions options;
  options.context.reproducible = true;
  replay(2, {.path = DevicePathChoice::exchange}, options);
}

TEST_F(DeviceGraph, ReplaysOfNccl) {
  by_nccl([](int ranks, const DeviceOptions& options) { replay(ranks, options); });
}

/// The error would not name the rank that does not launch its graph. The position in the sequence of calls
/// identifies the graph's call.
TEST_F(DeviceGraph, ARankThatDoesNotLaunchItsGraphIsNamed) {
  InProcessOptions options;
  options.context.deadline = std::chrono::seconds(2);
  std::atomic<bool> is_told = false;
  const Error error = test::error_of([&] {
    run_in_process(
        2,
        [&](Context& context) {
          const Stream stream;
          DeviceCommunicator device(context, {.device = 0, .path = DevicePathChoice::exchange});
          const OnDevice values(std::vector<std::byte>(4000));
          context.communicator().barrier();
          const Graph graph(stream, [&] {
            device.all_reduce(values.data(), values.data(), 1000, DataType::f32, ReduceOp::max, stream);
          });
          context.communicator().barrier();
          if (context.rank() == 1) {
            while (!is_told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return;
          }
          graph.launch(stream);
          try {
            device.wait(stream);
          } catch (const Error&) {
            is_told = true;
            throw;
          }
        },
        options);
  });
  EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
  for (const char* const words : {"all_reduce (max of 1000 f32) of a captured graph", "ranks 1"})
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << words << " in: " << error.what();
}

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
std::vector<std::vector<float>> results_of(Context& context, const DeviceOptions& options,
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
    EXPECT_EQ(test::error_of([&] { steps.reducer().result(steps.stream()); }).code(),
              ErrorCode::invalid_argument)
        << "a weight below 0";
    context.communicator().barrier();
  }
  return results;
}

/// Steps in a graph have the bits of steps that are queued.
void reduce_in_graphs(int ranks, const DeviceOptions& options, const InProcessOptions& in_process = {},
                      const GradientReducerOptions& how = {.gradients = GradientKind::sum}) {
  run_in_process(
      ranks,
      [&](Context& context) {
        int devices = 0;
        ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
        DeviceOptions own = options;
        own.device = context.rank() % devices;
        ASSERT_EQ(cudaSetDevice(own.device), cudaSuccess);
        const auto wanted = results_of(context, own, how, false);
        const auto found = results_of(context, own, how, true);
        for (std::size_t i = 0; i < wanted.size(); ++i)
          EXPECT_TRUE(found[i] == wanted[i]) << "step " << i + 1;
      },
      in_process);
}

TEST_F(DeviceGraph, StepsOfGradientsByTheExchange) {
  reduce_in_graphs(3, {.path = DevicePathChoice::exchange});
}

TEST_F(DeviceGraph, StepsOfASingleRank) { reduce_in_graphs(1, {}); }

TEST_F(DeviceGraph, ShardedStepsWithTheirGather) {
  reduce_in_graphs(2, {.path = DevicePathChoice::exchange}, {},
                   {.gradients = GradientKind::sum, .sharded_update = true});
}

TEST_F(DeviceGraph, ReproducibleStepsOfGradients) {
  InProcessOptions options;
  options.context.reproducible = true;
  reduce_in_graphs(2, {.path = DevicePathChoice::exchange}, options);
}

TEST_F(DeviceGraph, StepsOfGradientsByNccl) {
  by_nccl([](int ranks, const DeviceOptions& options) { reduce_in_graphs(ranks, options); });
}

/// Such a step has a stream for each dimension, and with a 16-bit wire kernels and errors that are kept.
TEST_F(DeviceGraph, StepsByTheExchangeInsideHostsAndNcclBetween) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices < 4) GTEST_SKIP() << "fewer than four CUDA devices: NCCL needs one for each rank";
  const test::PlanJob job = {2, 2, {test::by_exchange, test::by_nccl}, DevicePathChoice::automatic, 2};
  InProcessOptions options;
  options.context.plans = test::given_plans(job);
  for (int rank = 0; rank < job.ranks(); ++rank) options.hosts.push_back(job.host_of(rank));
  reduce_in_graphs(4, {}, options);
  reduce_in_graphs(4, {}, options, {.gradients = GradientKind::sum, .wire = DataType::bf16});
}

/// After each refusal the capture and the step go on.
TEST_F(DeviceGraph, StepsThatCannotBeCapturedAreRefused) {
  run_in_process(1, [](Context& context) {
    const Stream stream;
    DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
    auto* const values = reinterpret_cast<float*>(device.allocate(8000).data);
    GradientReducer reducer(device, {{"a", {values, 1000}}, {"b", {values + 1000, 1000}}},
                            {.gradients = GradientKind::sum});
    const auto refused = [&](const std::function<void()>& call, ErrorCode code, const std::string& words) {
      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
      const Error error = test::error_of(call);
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << "the capture goes on";
      cudaGraphDestroy(graph);
    };
    refused([&] { reducer.ready(0, stream); }, ErrorCode::unsupported, "take one step without a capture");
    reducer.ready(0, stream);
    refused([&] { reducer.finish(1, stream); }, ErrorCode::unsupported, "take one step without a capture");
    reducer.ready(1, stream);
    reducer.finish(1, stream);
    EXPECT_EQ(reducer.result().weight, 1);

    reducer.ready(0, stream);
    refused([&] { reducer.ready(1, stream); }, ErrorCode::invalid_argument,
            "expected all of a step in one capture");
    refused([&] { reducer.finish(1, stream); }, ErrorCode::invalid_argument,
            "expected all of a step in one capture");
    reducer.ready(1, stream);
    reducer.finish(2, stream);
    EXPECT_EQ(reducer.result().weight, 2);

    {
      const auto scope = reducer.no_sync();
      reducer.ready(0, stream);
      reducer.ready(1, stream);
      const Error error =
          test::error_of([&] { reducer.finish(DeviceWeight{reinterpret_cast<double*>(values)}, stream); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      reducer.finish(0, stream);
    }
    const Error error = test::error_of([&] { reducer.finish(DeviceWeight{}, stream); });
    EXPECT_NE(std::string(error.what()).find("found a null pointer"), std::string::npos) << error.what();
    reducer.ready(0, stream);
    reducer.ready(1, stream);
    reducer.finish(3, stream);
    EXPECT_EQ(reducer.result().weight, 3);

    EXPECT_EQ(test::error_of([&] { reducer.result(stream); }).code(), ErrorCode::invalid_argument);

    GradientReducer in_rows(device, {{"a", {values, 1000}, 10}}, {.gradients = GradientKind::sum});
    in_rows.ready(0, stream);
    in_rows.finish(1, stream);
    in_rows.result();
    EXPECT_FALSE(in_rows.can_be_captured());
    refused([&] { in_rows.ready(0, stream); }, ErrorCode::unsupported, "no gradients with rows");
    device.release(stream);
  });
}

}  // namespace
}  // namespace ddl
