// Emulated devices capture and replay like CUDA, and refuse the same calls during a capture.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "device/device_fixture.hpp"
#include "device/emulated/emulated_cuda.hpp"
#include "device/emulated_kernel_helpers.hpp"

namespace ddl::test {
namespace {

using WriteValue = decltype(&cuStreamWriteValue64);

WriteValue find_write_value() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
#if CUDART_VERSION >= 12050
  EXPECT_EQ(
      cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &found, 11070, cudaEnableDefault, &status),
      cudaSuccess);
#else
  EXPECT_EQ(cudaGetDriverEntryPoint("cuStreamWriteValue64", &found, cudaEnableDefault, &status), cudaSuccess);
#endif
  EXPECT_EQ(status, cudaDriverEntryPointSuccess);
  return reinterpret_cast<WriteValue>(found);
}

class Event {
 public:
  Event() { EXPECT_EQ(cudaEventCreate(&event_), cudaSuccess); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// An executable graph of captured work.
class Captured {
 public:
  Captured(cudaStream_t stream, const std::function<void()>& work) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    work();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable_, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() { cudaGraphExecDestroy(executable_); }
  void replay(cudaStream_t stream) { EXPECT_EQ(cudaGraphLaunch(executable_, stream), cudaSuccess); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

class EmulatedCapture : public Emulated {};

TEST_F(EmulatedCapture, ReplaysHaveTheArgumentsOfTheCapture) {
  const Stream stream;
  int number = 7;
  std::vector<int> seen;
  Captured captured(stream, [&] {
    EXPECT_EQ(launch(stream, [&seen, number](const emulated_cuda::Spot&) { seen.push_back(number); }),
              cudaSuccess);
  });
  EXPECT_TRUE(seen.empty()) << "captured work is not run";
  for (number = 8; number < 11; ++number) captured.replay(stream);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(seen, std::vector<int>(3, 7));
}

TEST_F(EmulatedCapture, CopiesHostFunctionsAndWrittenValuesAreCaptured) {
  const Stream stream;
  const WriteValue write_value = find_write_value();
  std::uint64_t written = 0;
  int calls = 0;
  int from = 5;
  int to = 0;
  std::uint64_t number = 40;
  Captured captured(stream, [&] {
    EXPECT_EQ(cudaMemcpyAsync(&to, &from, sizeof to, cudaMemcpyDefault, stream), cudaSuccess);
    EXPECT_EQ(cudaLaunchHostFunc(
                  stream, [](void* data) { ++*static_cast<int*>(data); }, &calls),
              cudaSuccess);
    EXPECT_EQ(write_value(stream, reinterpret_cast<CUdeviceptr>(&written), number, 0), CUDA_SUCCESS);
  });
  number = 41;
  from = 6;
  captured.replay(stream);
  captured.replay(stream);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(to, 6);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(written, 40U);
}

/// The second branch's kernel opens the gate at which the first one's waits.
TEST_F(EmulatedCapture, BranchesRunAtTheSameTimeAndAreJoined) {
  Gate gate;
  std::atomic<int> order = 0;
  int last = 0;
  const Stream stream;
  const Stream side;
  const Event fork;
  const Event join;
  Captured captured(stream, [&] {
    EXPECT_EQ(cudaEventRecord(fork, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(side, fork, 0), cudaSuccess);
    EXPECT_EQ(emulated_cuda::capture_of(side), emulated_cuda::capture_of(stream));
    EXPECT_EQ(launch_wait(stream, gate), cudaSuccess);
    EXPECT_EQ(launch(side,
                     [&](const emulated_cuda::Spot&) {
                       ++order;
                       gate.open();
                     }),
              cudaSuccess);
    EXPECT_EQ(cudaEventRecord(join, side), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream, join, 0), cudaSuccess);
    EXPECT_EQ(launch(stream, [&](const emulated_cuda::Spot&) { last = ++order; }), cudaSuccess);
  });
  captured.replay(stream);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_FALSE(gate.has_failed());
  EXPECT_EQ(last, 2);
  EXPECT_EQ(cudaStreamQuery(side), cudaSuccess) << "it captures no more";
}

TEST_F(EmulatedCapture, WhatIsNotJoinedIsTold) {
  const Stream stream;
  const Stream side;
  const Event fork;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(fork, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(side, fork, 0), cudaSuccess);
  EXPECT_EQ(launch(side, [](const emulated_cuda::Spot&) {}), cudaSuccess);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
}

/// Expects that `call` fails with `expected` during a capture and invalidates the capture.
void expect_refused(cudaStreamCaptureMode mode, cudaError_t expected, const std::string& name,
                    const std::function<cudaError_t(cudaStream_t, cudaEvent_t)>& call) {
  const Stream stream;
  const Event captured;
  ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(captured, stream), cudaSuccess);
  EXPECT_EQ(call(stream, captured), expected) << name;
  cudaStreamCaptureStatus status{};
  EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated) << name;
  EXPECT_EQ(launch(stream, [](const emulated_cuda::Spot&) {}), cudaErrorStreamCaptureInvalidated) << name;
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated) << name;
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(launch(stream, [](const emulated_cuda::Spot&) {}), cudaErrorStreamCaptureInvalidated)
      << "told once more by cudaGetLastError";
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess) << "the stream can be used again";
}

using Call = std::pair<std::string, std::function<cudaError_t()>>;

std::vector<Call> unsafe_calls(cudaStream_t other, cudaEvent_t recorded, void* memory, void* pinned) {
  return {{"cudaMalloc",
           [] {
             void* made = nullptr;
             return cudaMalloc(&made, 1);
           }},
          {"cudaFree", [=] { return cudaFree(memory); }},
          {"cudaHostAlloc",
           [] {
             void* made = nullptr;
             return cudaHostAlloc(&made, 1, 0);
           }},
          {"cudaFreeHost", [=] { return cudaFreeHost(pinned); }},
          {"cudaDeviceSynchronize", [] { return cudaDeviceSynchronize(); }},
          {"cudaStreamSynchronize", [=] { return cudaStreamSynchronize(other); }},
          {"cudaStreamQuery", [=] { return cudaStreamQuery(other); }},
          {"cudaEventSynchronize", [=] { return cudaEventSynchronize(recorded); }},
          {"cudaEventQuery", [=] { return cudaEventQuery(recorded); }},
          {"cudaMemcpy", [=] { return cudaMemcpy(memory, pinned, 1, cudaMemcpyDefault); }}};
}

TEST_F(EmulatedCapture, CallsThatWaitForOrAskWhatIsCapturedAreRefused) {
  for (const auto mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    expect_refused(mode, cudaErrorStreamCaptureUnsupported, "cudaStreamSynchronize",
                   [](cudaStream_t stream, cudaEvent_t) { return cudaStreamSynchronize(stream); });
    expect_refused(mode, cudaErrorStreamCaptureUnsupported, "cudaStreamQuery",
                   [](cudaStream_t stream, cudaEvent_t) { return cudaStreamQuery(stream); });
    expect_refused(mode, cudaErrorCapturedEvent, "cudaEventSynchronize",
                   [](cudaStream_t, cudaEvent_t event) { return cudaEventSynchronize(event); });
    expect_refused(mode, cudaErrorCapturedEvent, "cudaEventQuery",
                   [](cudaStream_t, cudaEvent_t event) { return cudaEventQuery(event); });
    const Stream other;
    const Event outside;
    EXPECT_EQ(cudaEventRecord(outside, other), cudaSuccess);
    expect_refused(mode, cudaErrorStreamCaptureIsolation, "cudaStreamWaitEvent",
                   [&](cudaStream_t stream, cudaEvent_t) { return cudaStreamWaitEvent(stream, outside, 0); });
  }
}

TEST_F(EmulatedCapture, UnsafeCallsAreRefusedAsTheModesSay) {
  const Stream other;
  const Event recorded;
  void* memory = nullptr;
  void* pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 1), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(&pinned, 1, 0), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(recorded, other), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto in_thread = [](const std::function<cudaError_t()>& call, cudaStreamCaptureMode mode) {
    cudaError_t error = cudaSuccess;
    std::thread([&] {
      cudaThreadExchangeStreamCaptureMode(&mode);
      error = call();
    }).join();
    return error;
  };
  for (const auto& [name, call] : unsafe_calls(other, recorded, memory, pinned)) {
    const auto refused = cudaErrorStreamCaptureUnsupported;
    for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
      expect_refused(mode, refused, name, [&](cudaStream_t, cudaEvent_t) { return call(); });
    }
    expect_refused(cudaStreamCaptureModeGlobal, refused, name + " of another thread",
                   [&](cudaStream_t, cudaEvent_t) { return in_thread(call, cudaStreamCaptureModeGlobal); });
  }
  // Calls that destroy nothing.
  const std::vector<Call> calls = {{"cudaEventQuery", [&] { return cudaEventQuery(recorded); }},
                                   {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(other); }}};
  for (const auto& [name, call] : calls) {
    const Stream stream;
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(in_thread(call, cudaStreamCaptureModeRelaxed), cudaSuccess) << name;
    EXPECT_EQ(in_thread(call, cudaStreamCaptureModeThreadLocal), cudaSuccess) << name;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << name;
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(in_thread(call, cudaStreamCaptureModeGlobal), cudaSuccess) << name;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << name;
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
    EXPECT_EQ(call(), cudaSuccess) << name;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << name;
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(EmulatedCapture, TheDefaultStreamIsNoUseWhileABlockingStreamCaptures) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  int value = 0;
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed), cudaSuccess);
  cudaStreamCaptureStatus status{};
  EXPECT_EQ(cudaStreamIsCapturing(nullptr, &status), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(cudaStreamIsCapturing(blocking, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_EQ(cudaMemsetAsync(&value, 0, sizeof value, nullptr), cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(EmulatedCapture, AnotherThreadCannotEndIt) {
  const Stream stream;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  cudaGraph_t graph = nullptr;
  std::thread([&] {
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
}

TEST_F(EmulatedCapture, ValuesAreWrittenInTheOrderOfTheStream) {
  const WriteValue write_value = find_write_value();
  const Stream stream;
  Gate gate;
  std::uint64_t value = 0;
  const auto seen = [&] { return __atomic_load_n(&value, __ATOMIC_ACQUIRE); };
  int before = 0;
  EXPECT_EQ(launch(stream,
                   [&](const emulated_cuda::Spot& spot) {
                     gate.wait(spot.device);
                     before = 1;
                   }),
            cudaSuccess);
  EXPECT_EQ(write_value(stream, reinterpret_cast<CUdeviceptr>(&value), 3, 0), CUDA_SUCCESS);
  EXPECT_EQ(seen(), 0U);
  gate.open();
  while (seen() != 3) std::this_thread::yield();
  EXPECT_EQ(before, 1);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
}

}  // namespace
}  // namespace ddl::test
