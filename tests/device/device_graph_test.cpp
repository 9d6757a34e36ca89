// Collectives in captured graphs: each launch of a graph counts as a call among others.

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

class DeviceGraph : public Device {};

TEST_F(DeviceGraph, ReplaysOfTheExchange) { replay(3, {.path = DevicePathChoice::exchange}); }

TEST_F(DeviceGraph, ReplaysOfReproducibleReductions) {
  InProcessOptions options;
  options.context.reproducible = true;
  replay(2, {.path = DevicePathChoice::exchange}, options);
}

TEST_F(DeviceGraph, ReplaysOfNccl) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  const DeviceOptions options = {.path = DevicePathChoice::nccl};
  try {
    replay(devices < 2 ? 1 : 2, options);
  } catch (const Error& error) {
    if (std::string(error.what()).find("libnccl.so.2") == std::string::npos) throw;
    GTEST_SKIP() << error.what();
  }
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
          DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
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

TEST_F(DeviceGraph, GradientsAreNotReducedInGraphs) {
  run_in_process(1, [](Context& context) {
    const Stream stream;
    DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
    auto* const values = reinterpret_cast<float*>(device.allocate(4000).data);
    GradientReducer reducer(device, {{"a", {values, 1000}}}, {.gradients = GradientKind::sum});
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    const Error error = test::error_of([&] { reducer.ready(0, stream); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << "the capture goes on";
    cudaGraphDestroy(graph);
    reducer.ready(0, stream);
    reducer.finish(1, stream);
    EXPECT_EQ(reducer.result().weight, 1);
    device.release(stream);
  });
}

}  // namespace
}  // namespace ddl
