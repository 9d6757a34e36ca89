// Collectives and steps of gradients in captured graphs: each launch counts as a call among others.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/gradient_reducer.hpp"
#include "device/device_cases.hpp"
#include "device/device_fixture.hpp"
#include "device/graph_steps.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::Device;
using test::Graph;
using test::OnDevice;
using test::reduce_in_graphs;
using test::Stream;

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
        const DeviceOptions own = test::on_own_device(context, options);
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
