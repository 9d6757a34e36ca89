// The printed plan is the one that runs, for all combinations of carriers of an all-reduce's dimensions.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "device/device_fixture.hpp"
#include "device/device_plan_jobs.hpp"
#include "device/graph_steps.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::by_exchange;
using test::by_nccl;
using test::run_plan_job;

class DevicePlans : public test::Device {
 protected:
  void SetUp() override {
    test::Device::SetUp();
    if (IsSkipped()) return;
    EXPECT_EQ(cudaGetDeviceCount(&devices_), cudaSuccess);
  }
  /// NCCL refuses ranks that share a device.
  [[nodiscard]] bool has_devices_for(int ranks) const { return ranks <= devices_; }

 private:
  int devices_ = 0;
};

TEST_F(DevicePlans, TheExchangeAlone) {
  for (const int ranks : {1, 2, 3, 4}) run_plan_job({1, ranks, {by_exchange}, DevicePathChoice::exchange});
}

TEST_F(DevicePlans, NcclOverAllRanks) {
  for (const int hosts : {1, 2, 3, 4}) {
    for (const int each : {1, 2, 3, 4}) {
      if (has_devices_for(hosts * each)) run_plan_job({hosts, each, {by_nccl}, DevicePathChoice::nccl});
    }
  }
}

TEST_F(DevicePlans, NcclByDimension) {
  if (!has_devices_for(4)) GTEST_SKIP() << "fewer than four CUDA devices: NCCL needs one for each rank";
  for (const int hosts : {2, 3, 4}) {
    for (const int each : {2, 3, 4}) {
      if (has_devices_for(hosts * each))
        run_plan_job({hosts, each, {by_nccl, by_nccl}, DevicePathChoice::nccl, 4});
    }
  }
}

TEST_F(DevicePlans, TheExchangeInsideHostsAndNcclBetweenThem) {
  if (!has_devices_for(4)) GTEST_SKIP() << "fewer than four CUDA devices: NCCL needs one for each rank";
  for (const int hosts : {2, 3, 4}) {
    for (const int each : {2, 3, 4}) {
      if (has_devices_for(hosts * each)) {
        run_plan_job({hosts, each, {by_exchange, by_nccl}, DevicePathChoice::automatic, each});
      }
    }
  }
}

/// A captured step has a stream for each dimension, and with a 16-bit wire kernels, and errors that are kept.
TEST_F(DevicePlans, StepsOfGradientsInGraphs) {
  if (!has_devices_for(4)) GTEST_SKIP() << "fewer than four CUDA devices: NCCL needs one for each rank";
  test::reduce_in_graphs(4, {.path = DevicePathChoice::nccl});
  const test::PlanJob job = {2, 2, {by_exchange, by_nccl}, DevicePathChoice::automatic, 2};
  InProcessOptions options;
  options.context.plans = test::given_plans(job);
  for (int rank = 0; rank < job.ranks(); ++rank) options.hosts.push_back(job.host_of(rank));
  test::reduce_in_graphs(4, {}, options);
  test::reduce_in_graphs(4, {}, options, {.gradients = GradientKind::sum, .wire = DataType::bf16});
}

/// Plans with missing carriers, or with steps for which there are no kernels, would be ignored silently.
TEST_F(DevicePlans, WhatIsAskedForAndCannotBeIsTold) {
  ContextOptions asked;
  const auto plan = [&asked] {
    topology::Plan chosen;
    InProcessOptions options;
    options.context = asked;
    run_in_process(
        2,
        [&](Context& context) {
          const DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
          if (context.is_root()) chosen = device.plan(topology::Collective::all_reduce, 4096, DataType::f32);
        },
        options);
    EXPECT_EQ(chosen.dimensions.size(), 1U);
    EXPECT_EQ(chosen.dimensions[0].carrier, topology::Carrier::cuda_ipc) << summary(chosen);
    return chosen;
  };
  const auto expect_note = [&plan](const std::vector<std::string>& words) {
    const std::vector<std::string> notes = plan().notes;
    ASSERT_EQ(notes.size(), 1U);
    test::expect_parts(notes[0], words);
  };
  topology::Plan given;
  given.decomposition = topology::Decomposition({2}, {});
  given.order = {0, 1};
  for (const topology::PlanDimension wanted :
       {topology::PlanDimension{topology::Algorithm::tree, topology::Carrier::cuda_ipc}, by_nccl,
        test::by_network}) {
    given.dimensions = {wanted};
    asked.plans = {given};
    expect_note({"DDL_PLAN asks for", "or not for all sizes", "is chosen without it"});
  }
  asked.strict = true;
  test::expect_error(ErrorCode::unsupported, {"DDL_STRICT=1", "DDL_PLAN asks for"}, [&] { plan(); });
  asked.strict = false;
  given.dimensions = {by_exchange};
  asked.plans = {given};
  EXPECT_TRUE(plan().notes.empty());
  asked.plans = {};
  for (const topology::Mode mode : {topology::Mode::nccl, topology::Mode::nccl_per_dimension}) {
    asked.mode = mode;
    expect_note({"-mode ", "asks for NCCL", "is chosen without it"});
  }
}

}  // namespace
}  // namespace ddl
