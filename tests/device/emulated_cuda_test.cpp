// Emulated devices have the limits of real ones in queueing, running kernels and errors. Otherwise code that
// hangs or is wrong on a GPU would pass the tests that use them.

#include "device/emulated/emulated_cuda.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <vector>

#include "device/device_fixture.hpp"
#include "device/emulated/emulated_fibers.hpp"
#include "device/emulated_kernel_helpers.hpp"

namespace ddl::test {
namespace {

using std::chrono::milliseconds;

// Timeouts of kernels that wait in vain, and of those whose wait must end, even on a slow machine.
constexpr milliseconds in_vain(300);
constexpr milliseconds long_enough(60'000);

/// A kernel waits for one of another stream; a third one is queued behind the first in its stream.
bool meet_through_queues(milliseconds patience) {
  Gate gate(patience);
  const Stream first;
  const Stream second;
  EXPECT_EQ(launch_wait(first, gate), cudaSuccess);
  EXPECT_EQ(launch(first, [](const emulated_cuda::Spot&) {}), cudaSuccess);
  EXPECT_EQ(launch_open(second, gate), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return !gate.has_failed();
}

TEST_F(Emulated, StreamsThatShareAHardwareQueueWaitForEachOther) {
  begin(1);
  EXPECT_FALSE(meet_through_queues(in_vain));
  begin(32);
  EXPECT_TRUE(meet_through_queues(long_enough));
}

TEST_F(Emulated, AStreamThatWaitsForAnEventHoldsUpItsHardwareQueue) {
  for (const int connections : {1, 32}) {
    begin(connections);
    Gate gate(connections == 1 ? in_vain : long_enough);
    const Stream first;
    const Stream second;
    const Stream third;
    cudaEvent_t event = nullptr;
    ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
    EXPECT_EQ(launch_wait(first, gate), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, first), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
    EXPECT_EQ(launch_open(third, gate), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(gate.has_failed(), connections == 1);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  }
}

TEST_F(Emulated, UrgentStreamsHaveHardwareQueuesOfTheirOwn) {
  begin(1);
  Gate gate;
  const Stream stream;
  cudaStream_t urgent = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -1), cudaSuccess);
  EXPECT_EQ(launch_wait(stream, gate), cudaSuccess);
  EXPECT_EQ(launch(stream, [](const emulated_cuda::Spot&) {}), cudaSuccess);
  EXPECT_EQ(launch_open(urgent, gate), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_FALSE(gate.has_failed());
  EXPECT_EQ(cudaStreamDestroy(urgent), cudaSuccess);
}

TEST_F(Emulated, AFullLaunchQueueBlocksAllThatSubmitButNotWhoAsks) {
  emulated_cuda::machine().launches = 4;
  Gate gate;
  const Stream full;
  const Stream other;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  EXPECT_EQ(launch_wait(full, gate), cudaSuccess);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(launch(full, [](const emulated_cuda::Spot&) {}), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, full), cudaSuccess);
  const auto fifth =
      std::async(std::launch::async, [&] { return launch(full, [](const emulated_cuda::Spot&) {}); });
  EXPECT_TRUE(is_blocked(fifth));
  const auto elsewhere =
      std::async(std::launch::async, [&] { return launch(other, [](const emulated_cuda::Spot&) {}); });
  EXPECT_TRUE(is_blocked(elsewhere));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(full), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  gate.open();
  fifth.wait();
  elsewhere.wait();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_FALSE(gate.has_failed());
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

/// Each of two kernels waits until all blocks of both run.
bool meet_on_device(unsigned blocks_of_each, milliseconds patience) {
  std::atomic<unsigned> arrived = 0;
  Gate gate(patience);
  const auto body = [&](const emulated_cuda::Spot& spot) {
    if (++arrived == 2 * blocks_of_each) gate.open();
    gate.wait(spot.device);
  };
  const Stream first;
  const Stream second;
  EXPECT_EQ(launch(first, body, blocks_of_each), cudaSuccess);
  EXPECT_EQ(launch(second, body, blocks_of_each), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return !gate.has_failed();
}

TEST_F(Emulated, KernelsThatWaitForEachOtherMustFitTogether) {
  emulated_cuda::machine().multiprocessors = 3;
  emulated_cuda::machine().blocks_per_multiprocessor = 2;
  EXPECT_TRUE(meet_on_device(3, long_enough));
  EXPECT_FALSE(meet_on_device(4, in_vain));
}

TEST_F(Emulated, AllBlocksOfALargeKernelRunOnce) {
  std::vector<std::atomic<int>> runs(5 * 7 * 11);
  const emulated_cuda::Launch launch{
      .kernel = &test_kernel, .grid = dim3(5, 7, 11), .threads = dim3(8, 4, 2), .stream = nullptr};
  EXPECT_EQ(emulated_cuda::launch(launch,
                                  [&](const emulated_cuda::Spot& at) {
                                    ++runs[at.block.x + 5 * (at.block.y + 7 * at.block.z)];
                                  }),
            cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (const auto& run : runs) ASSERT_EQ(run, 1);
}

TEST_F(Emulated, ABlocksThreadsMeetAndWait) {
  constexpr int threads = 512;
  std::atomic<int> wrong = 0;
  const auto body = [&](const emulated_cuda::Spot& spot) {
    int arrived = 0;
    int ended = 0;
    emulated_cuda::run_fibers(spot.device, threads, [&](int thread) {
      for (int round = 1; round < 4; ++round) {
        if (thread == 3) emulated_cuda::pause_fiber();
        ++arrived;
        emulated_cuda::sync_fibers();
        if (arrived != round * threads) ++wrong;
        emulated_cuda::sync_fibers();
      }
      if (thread % 2 == 0) ++ended;
      if (thread % 2 == 0) return;
      emulated_cuda::sync_fibers();  // does not wait for fibers that have ended
      if (ended != threads / 2) ++wrong;
    });
  };
  EXPECT_EQ(launch(nullptr, body, 100), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(wrong, 0);
}

TEST_F(Emulated, GridsAndBlocksHaveCudasLimits) {
  const auto error_of = [](dim3 grid, dim3 threads) {
    return emulated_cuda::launch(
        {.kernel = &test_kernel, .grid = grid, .threads = threads, .stream = nullptr},
        [](const emulated_cuda::Spot&) {});
  };
  EXPECT_EQ(error_of(dim3(1, 1, 1), dim3(1024)), cudaSuccess);
  EXPECT_EQ(error_of(dim3(0), dim3(1)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(error_of(dim3(1), dim3(0)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(error_of(dim3(1), dim3(1025)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(error_of(dim3(1), dim3(32, 33)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(error_of(dim3(2'147'483'648U), dim3(1)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(error_of(dim3(1, 65'536), dim3(1)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(error_of(dim3(1, 1, 65'536), dim3(1)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the launch has told it";
}

/// Whether a kernel that is launched on the stream after a cudaMemcpy sees what it has copied.
bool sees_copy(cudaStream_t stream, std::byte* on_device, std::byte* from) {
  *from = std::byte{7};
  EXPECT_EQ(cudaMemset(on_device, 0, 1), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(on_device, from, 1, cudaMemcpyHostToDevice), cudaSuccess);
  *from = std::byte{0};
  bool sees = false;
  EXPECT_EQ(launch(stream, [&](const emulated_cuda::Spot&) { sees = *on_device == std::byte{7}; }),
            cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(*on_device, std::byte{7});
  return sees;
}

TEST_F(Emulated, CopiesFromPageableMemoryAreLateForStreamsThatDoNotWait) {
  const Stream stream;
  cudaStream_t blocking = nullptr;
  void *on_device = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&on_device, 1), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 1), cudaSuccess);
  auto* const target = static_cast<std::byte*>(on_device);
  std::byte pageable{};
  int late = 0;
  for (int i = 0; i < 100 && late == 0; ++i) late += sees_copy(stream, target, &pageable) ? 0 : 1;
  EXPECT_GT(late, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(sees_copy(blocking, target, &pageable));
    EXPECT_TRUE(sees_copy(nullptr, target, &pageable));
    EXPECT_TRUE(sees_copy(stream, target, static_cast<std::byte*>(pinned)));
  }
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  EXPECT_EQ(cudaFree(on_device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(Emulated, CopiesOfRowsHaveAGreatestPitch) {
  emulated_cuda::machine().pitch = 1000;
  std::vector<char> memory(3000);
  const auto error_of = [&](std::size_t to, std::size_t from, std::size_t width) {
    return cudaMemcpy2DAsync(memory.data(), to, memory.data(), from, width, 1, cudaMemcpyDefault, nullptr);
  };
  EXPECT_EQ(error_of(1000, 1000, 1000), cudaSuccess);
  EXPECT_EQ(error_of(1001, 1000, 10), cudaErrorInvalidPitchValue);
  EXPECT_EQ(error_of(1000, 1001, 10), cudaErrorInvalidPitchValue);
  EXPECT_EQ(error_of(10, 1000, 11), cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "it has been told";
}

TEST_F(Emulated, AKernelsFirstLaunchWaitsForTheDevice) {
  constexpr char loaded = 0;
  constexpr char not_loaded = 0;
  begin(32, "LAZY");
  Gate gate;
  const Stream first;
  const Stream second;
  EXPECT_EQ(launch_wait(first, gate), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  const auto launched = std::async(std::launch::async, [&] {
    return launch(
        second, [](const emulated_cuda::Spot&) {}, 1, &not_loaded);
  });
  EXPECT_TRUE(is_blocked(launched));
  gate.open();
  launched.wait();
  cudaFuncAttributes attributes{};
  EXPECT_EQ(cudaFuncGetAttributes(&attributes, &loaded), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (const void* const kernel : {&loaded, &not_loaded}) {
    Gate again;
    EXPECT_EQ(launch_wait(first, again), cudaSuccess);
    EXPECT_EQ(launch(
                  second, [&](const emulated_cuda::Spot&) { again.open(); }, 1, kernel),
              cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_FALSE(again.has_failed());
  }
}

TEST_F(Emulated, NewEventsAndStreamsWaitForTheDevice) {
  emulated_cuda::machine().creation_waits = true;
  Gate gate;
  const Stream stream;
  EXPECT_EQ(launch_wait(stream, gate), cudaSuccess);
  const auto event = std::async(std::launch::async, [] {
    cudaEvent_t made = nullptr;
    EXPECT_EQ(cudaEventCreate(&made), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(made), cudaSuccess);
  });
  const auto created = std::async(std::launch::async, [] { const Stream made; });
  EXPECT_TRUE(is_blocked(event));
  EXPECT_TRUE(is_blocked(created));
  gate.open();
}

TEST_F(Emulated, ADevicesFaultStays) {
  cudaEvent_t event = nullptr;
  cudaStream_t stream = nullptr;
  void* memory = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&memory, 1), cudaSuccess);
  Gate gate;
  EXPECT_EQ(launch(stream,
                   [&](const emulated_cuda::Spot& at) {
                     gate.wait(at.device);
                     emulated_cuda::fault(at.device, cudaErrorIllegalAddress);
                   }),
            cudaSuccess);
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorIllegalAddress);
  }
  cudaEvent_t other = nullptr;
  cudaStream_t another = nullptr;
  void* more = nullptr;
  EXPECT_EQ(cudaEventCreate(&other), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamCreate(&another), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMemsetAsync(memory, 0, 1, stream), cudaErrorIllegalAddress);
  EXPECT_EQ(launch(stream, [](const emulated_cuda::Spot&) {}), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaFree(memory), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

TEST_F(Emulated, AFaultEndsWhatWaits) {
  emulated_cuda::machine().launches = 2;
  Gate gate;
  const Stream stream;
  EXPECT_EQ(launch_wait(stream, gate), cudaSuccess);
  EXPECT_EQ(launch(stream, [](const emulated_cuda::Spot&) {}), cudaSuccess);
  auto blocked =
      std::async(std::launch::async, [&] { return launch(stream, [](const emulated_cuda::Spot&) {}); });
  EXPECT_TRUE(is_blocked(blocked));
  while (gate.waiting() == 0) std::this_thread::yield();
  emulated_cuda::lose_device(0);
  blocked.wait();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  EXPECT_FALSE(gate.has_failed());
}

}  // namespace
}  // namespace ddl::test
