// Collectives on devices by the library's exchange. Ranks are threads, and share devices if there are too
// few.

#include "ddl/device.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/topology/schedule.hpp"
#include "device/device_cases.hpp"
#include "device/device_fixture.hpp"
#include "support/job_options.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::all_collectives;
using test::Case;
using test::Device;
using test::OnDevice;
using test::ops;
using test::Stream;
using test::types;
using test::with_deadline;
using topology::Collective;

constexpr DeviceOptions by_exchange = {.path = DevicePathChoice::exchange};

void run_cases(int ranks, const std::vector<Case>& cases) { test::run_cases(ranks, cases, by_exchange); }

TEST_F(Device, EveryTypeAndOperation) {
  std::vector<Case> cases;
  for (const DataType type : types) {
    for (const ReduceOp op : ops) {
      for (const std::size_t count : {1000, 1 << 18}) {
        cases.push_back({.type = type, .op = op, .count = count});
        cases.push_back({.collective = Collective::reduce_scatter, .type = type, .op = op, .count = count});
      }
    }
  }
  run_cases(3, cases);
}

TEST_F(Device, EveryCollectiveCountAndPlace) {
  for (const int ranks : {1, 2, 4}) {
    std::vector<Case> cases;
    for (const Collective collective : all_collectives) {
      for (const std::size_t count : {0, 1, 31, 33, 1009, 65'536, 65'537, (1 << 20) + 1}) {
        for (const bool in_place : {false, true}) {
          cases.push_back(
              {.collective = collective, .count = count, .root = ranks - 1, .in_place = in_place});
        }
      }
      cases.push_back({.collective = collective, .type = DataType::u8, .count = 1'000'003, .root = 0});
      cases.push_back({.collective = collective, .type = DataType::f16, .count = 77'777, .root = 0});
    }
    cases.push_back({.collective = Collective::barrier, .count = 0});
    run_cases(ranks, cases);
  }
}

/// Successive calls on a stream would race. Each call's output is the next one's input, without waiting in
/// between.
TEST_F(Device, CallsFollowEachOtherOnAStream) {
  constexpr int calls = 200;
  run_in_process(4, [](Context& context) {
    const std::vector<std::uint64_t> ones(100'000, 1);
    std::vector<std::byte> bytes(ones.size() * sizeof(std::uint64_t));
    std::memcpy(bytes.data(), ones.data(), bytes.size());
    const Stream stream;
    DeviceCommunicator device(context, by_exchange);
    const OnDevice values(bytes);
    context.communicator().barrier();
    for (int i = 0; i < calls; ++i) {
      const std::size_t count = i % 3 == 0 ? ones.size() : 1000;
      device.all_reduce(values.data(), values.data(), count, DataType::i64, ReduceOp::max, stream);
      if (i % 10 == 0)
        device.all_reduce(values.data(), values.data(), 10, DataType::i64, ReduceOp::sum, stream);
    }
    device.wait(stream);
    const auto found = values.bytes();
    std::vector<std::uint64_t> result(ones.size());
    std::memcpy(result.data(), found.data(), found.size());
    EXPECT_EQ(result[0], std::uint64_t{1} << (2 * (calls / 10)));
    EXPECT_EQ(result[10], 1U);
    context.communicator().barrier();
  });
}

/// Plans for devices would be made for the cores of the ranks instead of their GPUs.
TEST_F(Device, TheTopologyHasTheRanksGpus) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  run_in_process(devices + 1, [&](Context& context) {
    const DeviceCommunicator device(context,
                                    {.device = context.rank() % devices, .path = DevicePathChoice::exchange});
    const topology::Topology& found = device.topology();
    ASSERT_EQ(found.devices().size(), static_cast<std::size_t>(context.size()));
    for (const int node : found.devices()) {
      EXPECT_EQ(found.nodes()[static_cast<std::size_t>(node)].kind, topology::NodeKind::gpu);
    }
    const auto shares = [](const topology::Link& link) { return link.kind == topology::LinkKind::memory; };
    EXPECT_EQ(std::ranges::count_if(found.links(), shares), 2) << "the first and the last rank share a GPU";
  });
  InProcessOptions given;
  given.context.topology = "dgx1v:1";
  run_in_process(
      2,
      [](Context& context) {
        const DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
        ASSERT_TRUE(device.topology().carriers().has_value());
        EXPECT_TRUE(device.topology().carriers()->exchange);
        EXPECT_EQ(device.topology(), context.topology()->with_carriers(*device.topology().carriers()));
      },
      given);
}

TEST_F(Device, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  std::atomic<int> told = 0;
  const Error error = test::error_of([&] {
    run_in_process(
        3,
        [&](Context& context) {
          const Stream stream;
          DeviceCommunicator device(context, by_exchange);
          const OnDevice values(std::vector<std::byte>(4000));
          context.communicator().barrier();
          if (context.rank() == 1) {
            while (told < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
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
        with_deadline(std::chrono::seconds(2)));
  });
  EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
  EXPECT_NE(std::string(error.what()).find("all_reduce #1 on devices (sum of 1000 f32"), std::string::npos)
      << error.what();
}

TEST_F(Device, RanksThatCallOtherThingsLearnWhat) {
  const Error error = test::error_of([&] {
    run_in_process(2, [&](Context& context) {
      const Stream stream;
      DeviceCommunicator device(context, by_exchange);
      const OnDevice values(std::vector<std::byte>(4000));
      context.communicator().barrier();
      const std::size_t count = context.rank() == 0 ? 1000 : 999;
      device.all_reduce(values.data(), values.data(), count, DataType::f32, ReduceOp::sum, stream);
      device.wait(stream);
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
  EXPECT_NE(std::string(error.what()).find("of 999 f32"), std::string::npos) << error.what();
}

TEST_F(Device, BadArgumentsAreRefused) {
  run_in_process(2, [](Context& context) {
    DeviceCommunicator device(context, by_exchange);
    const DeviceMemory memory = device.allocate(4096);
    const auto code_of = [&](auto call) { return test::error_of(call).code(); };
    EXPECT_EQ(
        code_of([&] { device.all_reduce(nullptr, memory.data, 10, DataType::f32, ReduceOp::sum, nullptr); }),
        ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { device.broadcast(memory.data, memory.data, 10, DataType::f32, 2, nullptr); }),
              ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] {
                device.all_reduce(memory.data + 1, memory.data, 10, DataType::f32, ReduceOp::sum, nullptr);
              }),
              ErrorCode::invalid_argument);
  });
  const Error error = test::error_of([] {
    run_in_process(2, [](Context& context) { DeviceCommunicator device(context, {.device = 1000}); });
  });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_NE(std::string(error.what()).find("CUDA device 1000 does not exist"), std::string::npos)
      << error.what();
}

}  // namespace
}  // namespace ddl
