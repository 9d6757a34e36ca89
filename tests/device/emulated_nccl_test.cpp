// The emulated NCCL blocks where NCCL does, and ends waiting kernels on request.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "device/device_fixture.hpp"
#include "device/emulated/emulated_cuda.hpp"
#include "device/emulated_kernel_helpers.hpp"

extern "C" ncclResult_t ncclCommRevoke(ncclComm_t, int);  // missing in headers before NCCL 2.28

namespace ddl::test {
namespace {

class EmulatedNccl : public Emulated {
 protected:
  EmulatedNccl() {
    emulated_cuda::machine().devices = 2;
    EXPECT_EQ(ncclGetUniqueId(&id_), ncclSuccess);
  }
  /// Joins as one of two ranks; blocks until both have joined.
  [[nodiscard]] ncclComm_t join(int rank) const {
    EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
    ncclConfig_t configuration = NCCL_CONFIG_INITIALIZER;
    ncclComm_t made = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&made, 2, id_, rank, &configuration), ncclSuccess);
    return made;
  }
  void on_both_ranks(const std::function<void(int rank, ncclComm_t)>& body) const {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank) ranks.emplace_back([=, this] { body(rank, join(rank)); });
  }

  ncclUniqueId id_{};
};

ncclResult_t add_up(std::vector<int>& values, ncclComm_t communicator, cudaStream_t stream) {
  return ncclAllReduce(values.data(), values.data(), values.size(), ncclInt32, ncclSum, communicator, stream);
}

TEST_F(EmulatedNccl, ABlockingStartWaitsForAllRanks) {
  auto first = std::async(std::launch::async, [&] { return join(0); });
  EXPECT_TRUE(is_blocked(first));
  const ncclComm_t second = join(1);
  EXPECT_EQ(ncclCommDestroy(first.get()), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(second), ncclSuccess);
}

TEST_F(EmulatedNccl, CollectivesAreCapturedAndMeetOthers) {
  on_both_ranks([](int rank, ncclComm_t communicator) {
    const Stream stream;
    std::vector<int> values(1000, rank + 1);
    EXPECT_EQ(add_up(values, communicator, stream), ncclSuccess);  // the sum is 3
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(add_up(values, communicator, stream), ncclSuccess);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(values[0], 3);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    EXPECT_EQ(add_up(values, communicator, stream), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(values[999], 3 << 7);
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
  });
}

/// Rank 1 never calls, so rank 0's launches fill the queue, and another thread ends the communicator.
void end_a_blocked_launch(const std::function<void(ncclComm_t)>& end, ncclComm_t communicator) {
  const Stream stream;
  std::vector<int> values(10, 1);
  std::atomic<bool> is_over = false;
  auto blocked = std::async(std::launch::async, [&] {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    while (!is_over && add_up(values, communicator, stream) == ncclSuccess) continue;
  });
  EXPECT_TRUE(is_blocked(blocked));
  is_over = true;
  end(communicator);
  blocked.wait();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
}

TEST_F(EmulatedNccl, AbortEndsKernelsWhileALaunchIsBlocked) {
  emulated_cuda::machine().launches = 8;
  on_both_ranks([&](int rank, ncclComm_t communicator) {
    if (rank == 1) {
      EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
      return;
    }
    end_a_blocked_launch([](ncclComm_t of) { EXPECT_EQ(ncclCommAbort(of), ncclSuccess); }, communicator);
  });
}

TEST_F(EmulatedNccl, RevokeEndsKernelsAndLaterCallsFail) {
  emulated_cuda::machine().launches = 8;
  on_both_ranks([&](int rank, ncclComm_t communicator) {
    if (rank == 0) {
      end_a_blocked_launch([](ncclComm_t of) { EXPECT_EQ(ncclCommRevoke(of, 0), ncclSuccess); },
                           communicator);
      std::vector<int> values(1);
      EXPECT_EQ(add_up(values, communicator, nullptr), ncclInvalidUsage);
    }
    EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
  });
}

}  // namespace
}  // namespace ddl::test
