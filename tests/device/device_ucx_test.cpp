// Collectives on devices through UCX. Ranks are threads, on one host or on emulated ones.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/topology/plan.hpp"
#include "device/device_cases.hpp"
#include "device/device_fixture.hpp"
#include "device/device_plan_jobs.hpp"
#include "device/narrow_steps.hpp"
#include "device/test_numbers.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::all_collectives;
using test::Case;
using test::OnDevice;
using test::ops;
using test::Stream;
using test::types;
using topology::Collective;

/// Little staging memory, so that partial results need several parts.
constexpr DeviceOptions by_ucx = {.staging_bytes = std::size_t{64} << 10, .path = DevicePathChoice::ucx};

/// Skips the test, with the reason, if UCX does not support device memory.
class DeviceUcx : public test::Device {
 protected:
  void SetUp() override {
    Device::SetUp();
    if (IsSkipped()) return;
    try {
      run_in_process(1, [](Context& context) { DeviceCommunicator device(context, by_ucx); });
    } catch (const Error& error) {
      // Any other reason is a failure.
      if (std::string(error.what()).find("UCX does not know the memory of devices") == std::string::npos)
        throw;
      GTEST_SKIP() << error.what();
    }
  }
};

/// Emulated hosts with `ranks_each` ranks each; the last may have fewer.
InProcessOptions on_hosts(int ranks, int ranks_each) {
  InProcessOptions options;
  for (int rank = 0; rank < ranks; ++rank)
    options.hosts.push_back("host" + std::to_string(rank / ranks_each));
  return options;
}

TEST_F(DeviceUcx, EveryTypeAndOperation) {
  std::vector<Case> cases;
  for (const DataType type : types) {
    for (const ReduceOp op : ops) {
      for (const Collective collective :
           {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce}) {
        for (const std::size_t count : {1001, 30'000}) {
          cases.push_back({.collective = collective,
                           .type = type,
                           .op = op,
                           .count = count,
                           .root = 1,
                           .in_any_order = true});
        }
      }
    }
  }
  test::run_cases(4, cases, by_ucx, on_hosts(4, 2));
}

TEST_F(DeviceUcx, EveryCollectiveCountAndPlace) {
  for (const auto& [ranks, ranks_each] :
       {std::pair(1, 1), std::pair(2, 1), std::pair(3, 2), std::pair(4, 4)}) {
    std::vector<Case> cases;
    for (const Collective collective : all_collectives) {
      for (const std::size_t count : {0, 1, 31, 1009, 65'537, (1 << 19) + 1}) {
        for (const bool in_place : {false, true}) {
          cases.push_back({.collective = collective,
                           .count = count,
                           .root = ranks - 1,
                           .in_place = in_place,
                           .in_any_order = true});
        }
      }
      cases.push_back(
          {.collective = collective, .type = DataType::u8, .count = 100'003, .in_any_order = true});
    }
    cases.push_back({.collective = Collective::barrier, .count = 0});
    test::run_cases(ranks, cases, by_ucx, on_hosts(ranks, ranks_each));
  }
}

/// Gradients that are summed in 16 bits would be wrong where UCX or partial results carry another type.
TEST_F(DeviceUcx, NarrowSumsAreExact) {
  run_in_process(
      4,
      [](Context& context) {
        DeviceCommunicator device(context, by_ucx);
        test::with_each_type([&]<typename Narrow>(Narrow) {
          for (const bool sharded : {false, true})
            test::expect_exact_sums<Narrow>(
                context, device, true,
                {.gradients = GradientKind::sum, .bucket_bytes = 10'000, .sharded_update = sharded});
        });
      },
      on_hosts(4, 2));
}

/// Some plan would give wrong results: rings, trees and direct exchanges, with and without scratch memory, in
/// one or two dimensions, with equal and unequal hosts, in one part or several.
TEST_F(DeviceUcx, EveryFamilyOfPlans) {
  std::vector<Case> cases;
  for (const Collective collective : all_collectives) {
    for (const std::size_t count : {7, 3000, 70'001}) {
      cases.push_back(
          {.collective = collective, .op = ReduceOp::avg, .count = count, .root = 4, .in_any_order = true});
    }
  }
  for (const char letter : {'r', 'c', 'm'}) {
    for (const int ranks_each : {1, 4}) {
      InProcessOptions options = on_hosts(6, ranks_each);
      options.context.mode = topology::mode_from_letter(std::string(1, letter));
      SCOPED_TRACE(testing::Message() << "mode " << letter << ", ranks of a host " << ranks_each);
      test::run_cases(6, cases, by_ucx, options);
    }
  }
}

/// Requested modes and grids would not be used. (The cases above run such plans.)
TEST_F(DeviceUcx, ModesAndGridsNarrowThePlans) {
  constexpr std::size_t bytes = std::size_t{1} << 20;
  const auto plan_of = [&](char letter, const std::string& grid) {
    topology::Plan plan;
    InProcessOptions options = on_hosts(6, 1);
    options.context.mode = topology::mode_from_letter(std::string(1, letter));
    options.context.decomposition = grid;
    run_in_process(
        6,
        [&](Context& context) {
          const DeviceCommunicator device(context, by_ucx);
          if (context.is_root()) plan = device.plan(Collective::broadcast, bytes, DataType::f32);
        },
        options);
    EXPECT_EQ(plan.notes, std::vector<std::string>{}) << summary(plan);
    return plan;
  };
  for (const auto& dimension : plan_of('r', "").dimensions) {
    EXPECT_EQ(dimension, (topology::PlanDimension{topology::Algorithm::ring, topology::Carrier::network}));
  }
  for (const auto& dimension : plan_of('c', "2x3").dimensions) {
    EXPECT_EQ(dimension.carrier, topology::Carrier::network);
    EXPECT_TRUE(dimension.algorithm == topology::Algorithm::two_shot ||
                dimension.algorithm == topology::Algorithm::ring);  // between two
  }
  EXPECT_EQ(plan_of('m', "").dimensions.size(), 1U);
  for (const char* const grid : {"6", "2x3", "3x2"}) {
    EXPECT_EQ(to_string(plan_of('p', grid).decomposition), grid);
  }
}

TEST_F(DeviceUcx, AGivenPlanIsTakenAsItIs) {
  using topology::Algorithm;
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::halving_doubling, Algorithm::two_shot,
                                    Algorithm::one_shot, Algorithm::tree}) {
    for (const int chunks : {1, 3}) {
      test::run_plan_job({2,
                          2,
                          {{algorithm, topology::Carrier::network}},
                          DevicePathChoice::ucx,
                          chunks,
                          {Collective::all_reduce}});
    }
  }
}

/// Sums of floats would differ between ranks, or from the exact ones.
TEST_F(DeviceUcx, AllRanksHaveTheSameBits) {
  constexpr int ranks = 5;
  constexpr std::size_t count = 100'003;
  std::vector<std::vector<float>> found(ranks);
  const auto values_of = [](int rank) {
    const auto bytes = random_bytes(DataType::f32, count, static_cast<std::uint32_t>(rank) + 1);
    std::vector<float> values(count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  run_in_process(
      ranks,
      [&](Context& context) {
        const Stream stream;
        DeviceCommunicator device(context, by_ucx);
        const OnDevice values(
            random_bytes(DataType::f32, count, static_cast<std::uint32_t>(context.rank()) + 1));
        context.communicator().barrier();
        device.all_reduce(values.data(), values.data(), count, DataType::f32, ReduceOp::avg, stream);
        device.wait(stream);
        auto& own = found[static_cast<std::size_t>(context.rank())];
        own.resize(count);
        std::memcpy(own.data(), values.bytes().data(), count * sizeof(float));
        context.communicator().barrier();
      },
      on_hosts(ranks, 2));
  std::vector<double> exact(count), sizes(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> values = values_of(rank);
    for (std::size_t i = 0; i < count; ++i) {
      exact[i] += static_cast<double>(values[i]) / ranks;
      sizes[i] += std::abs(static_cast<double>(values[i])) / ranks;
    }
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double bound = ranks * 0x1p-24 * sizes[i] + 0x1p-120;
    if (!(std::abs(static_cast<double>(found[0][i]) - exact[i]) <= bound)) ++wrong;
  }
  EXPECT_EQ(wrong, 0U);
  for (int rank = 1; rank < ranks; ++rank) {
    EXPECT_EQ(
        std::memcmp(found[static_cast<std::size_t>(rank)].data(), found[0].data(), count * sizeof(float)), 0)
        << "rank " << rank;
  }
}

/// Calls would mix up messages when there are more of them than tags distinguish and roots run ahead. Each
/// call's output is the next one's input, on one of several streams, and the host does not wait.
TEST_F(DeviceUcx, CallsFollowEachOther) {
  constexpr int rounds = 100;
  run_in_process(
      3,
      [](Context& context) {
        const Stream streams[2];
        cudaEvent_t done = nullptr;
        ASSERT_EQ(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), cudaSuccess);
        DeviceCommunicator device(context, by_ucx);
        const std::vector<std::int64_t> ones(5000, 1);
        std::vector<std::byte> bytes(ones.size() * sizeof ones[0]);
        std::memcpy(bytes.data(), ones.data(), bytes.size());
        const OnDevice values(bytes);
        context.communicator().barrier();
        for (int round = 0; round < rounds; ++round) {
          const Stream& stream = streams[round % 2];
          for (int root = 0; root < 3; ++root) {
            device.broadcast(values.data(), values.data(), ones.size(), DataType::i64, 0, stream);
          }
          if (round % 10 == 0) {
            device.all_reduce(values.data(), values.data(), ones.size(), DataType::i64, ReduceOp::sum,
                              stream);
          }
          ASSERT_EQ(cudaEventRecord(done, stream), cudaSuccess);
          ASSERT_EQ(cudaStreamWaitEvent(streams[(round + 1) % 2], done, 0), cudaSuccess);
        }
        for (const Stream& stream : streams) device.wait(stream);
        std::vector<std::int64_t> result(ones.size());
        std::memcpy(result.data(), values.bytes().data(), bytes.size());
        EXPECT_EQ(result, std::vector<std::int64_t>(ones.size(), std::int64_t{std::lround(std::pow(3, 10))}));
        context.communicator().barrier();
        cudaEventDestroy(done);
      },
      on_hosts(3, 1));
}

/// A call would not see data that the stream has written before, or later work on the stream would not see
/// its results.
TEST_F(DeviceUcx, CallsKeepTheOrderOfTheirStream) {
  constexpr int rounds = 20;
  constexpr int ranks = 3;
  constexpr std::size_t bytes = 1'000'003;
  const auto value_of = [](int round, int rank) { return 7 * round + 3 * rank + 1; };
  run_in_process(
      ranks,
      [&](Context& context) {
        const Stream stream;
        DeviceCommunicator device(context, by_ucx);
        const OnDevice values{std::vector<std::byte>(bytes)};
        const OnDevice results{std::vector<std::byte>(rounds * bytes)};
        context.communicator().barrier();
        for (int round = 0; round < rounds; ++round) {
          for (int earlier = 10; earlier >= 0; --earlier) {
            const int value = value_of(round, context.rank()) + earlier;
            ASSERT_EQ(cudaMemsetAsync(values.data(), value, bytes, stream), cudaSuccess);
          }
          device.all_reduce(values.data(), values.data(), bytes, DataType::u8, ReduceOp::sum, stream);
          ASSERT_EQ(cudaMemcpyAsync(results.data() + static_cast<std::size_t>(round) * bytes, values.data(),
                                    bytes, cudaMemcpyDeviceToDevice, stream),
                    cudaSuccess);
        }
        device.wait(stream);
        const std::vector<std::byte> found = results.bytes();
        for (int round = 0; round < rounds; ++round) {
          int sum = 0;
          for (int rank = 0; rank < ranks; ++rank) sum += value_of(round, rank);
          const auto begin = found.begin() + round * static_cast<std::ptrdiff_t>(bytes);
          EXPECT_EQ(std::count(begin, begin + bytes, static_cast<std::byte>(sum)),
                    static_cast<std::ptrdiff_t>(bytes))
              << "round " << round;
        }
        context.communicator().barrier();
      },
      on_hosts(ranks, 2));
}

TEST_F(DeviceUcx, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  std::atomic<int> told = 0;
  InProcessOptions options = on_hosts(2, 1);
  options.context.deadline = std::chrono::seconds(2);
  const Error error = test::error_of([&] {
    run_in_process(
        2,
        [&](Context& context) {
          const Stream stream;
          DeviceCommunicator device(context, by_ucx);
          const OnDevice values(std::vector<std::byte>(4000));
          context.communicator().barrier();
          if (context.rank() == 1) {
            while (told < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return;
          }
          device.all_reduce(values.data(), values.data(), 1000, DataType::f32, ReduceOp::sum, stream);
          try {
            device.wait(stream);
          } catch (const Error&) {
            ++told;
            throw;
          }
        },
        options);
  });
  EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
  const std::string text = error.what();
  EXPECT_NE(text.find("all_reduce #1 on devices (sum of 1000 f32"), std::string::npos) << text;
  EXPECT_NE(text.find("waited 2 s for ranks 1"), std::string::npos) << text;
}

TEST_F(DeviceUcx, RanksThatCallOtherThingsAreTold) {
  using Call = std::function<void(DeviceCommunicator&, const OnDevice&, cudaStream_t)>;
  const auto all_reduce = [](std::size_t count, DataType type, ReduceOp op) -> Call {
    return [=](DeviceCommunicator& device, const OnDevice& values, cudaStream_t stream) {
      device.all_reduce(values.data(), values.data(), count, type, op, stream);
    };
  };
  const auto broadcast = [](int root) -> Call {
    return [=](DeviceCommunicator& device, const OnDevice& values, cudaStream_t stream) {
      device.broadcast(values.data(), values.data(), 1000, DataType::f32, root, stream);
    };
  };
  const Call usual = all_reduce(1000, DataType::f32, ReduceOp::sum);
  const std::pair<Call, Call> differing[] = {
      {usual, all_reduce(999, DataType::f32, ReduceOp::sum)},
      {usual, all_reduce(1000, DataType::i32, ReduceOp::sum)},
      {usual, all_reduce(1000, DataType::f32, ReduceOp::max)},
      {usual, broadcast(0)},
      {broadcast(0), broadcast(1)},
  };
  for (const auto& [first, second] : differing) {
    std::atomic<int> mismatches = 0;
    test::error_of([&] {
      run_in_process(
          2,
          [&](Context& context) {
            const Stream stream;
            const OnDevice values(std::vector<std::byte>(4000));
            DeviceCommunicator device(context, by_ucx);
            context.communicator().barrier();
            try {
              (context.rank() == 0 ? first : second)(device, values, stream);
              device.wait(stream);
              device.barrier(stream);
              device.wait(stream);
            } catch (const Error& error) {
              if (error.code() == ErrorCode::mismatch) ++mismatches;
              throw;
            }
          },
          on_hosts(2, 1));
    });
    EXPECT_GE(mismatches, 1);
  }
}

/// A difference in the last call would not be reported, because a root does not wait for its peers.
TEST_F(DeviceUcx, WhatDiffersInTheLastCallIsToldAtTheEnd) {
  testing::internal::CaptureStderr();
  const Error error = test::error_of([] {
    run_in_process(
        2,
        [](Context& context) {
          const Stream stream;
          const OnDevice values(std::vector<std::byte>(4000));
          {
            DeviceCommunicator device(context, by_ucx);
            context.communicator().barrier();
            if (context.rank() == 0) {
              device.broadcast(values.data(), values.data(), 1000, DataType::f32, 0, stream);
              device.wait(stream);
            }
          }
          context.communicator().barrier();
        },
        on_hosts(2, 1));
  });
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("calls something else"), std::string::npos) << text;
  EXPECT_NE(std::string(error.what()).find("the job has failed before"), std::string::npos) << error.what();
}

/// Plans with the exchange inside hosts and UCX between them would give wrong results. NCCL takes no part if
/// ranks share a device. Other collectives, and more ranks: see device_plan_processes_test.
TEST_F(DeviceUcx, TheExchangeInsideHostsAndUcxBetweenThem) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices > 1) GTEST_SKIP() << devices << " devices: NCCL would go between the hosts";
  constexpr int most_ranks = 8;  // so that each of their streams has a hardware queue
  for (const int hosts : {2, 3, 4}) {
    for (int each = 2; hosts * each <= most_ranks; ++each) {
      test::run_plan_job({hosts,
                          each,
                          {test::by_exchange, test::by_network},
                          DevicePathChoice::automatic,
                          2,
                          {Collective::all_reduce}});
    }
  }
}

}  // namespace
}  // namespace ddl
