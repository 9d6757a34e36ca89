// The plan that is printed is what runs: for every way of carrying the dimensions of an all-reduce.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "device/device_fixture.hpp"
#include "device/device_plan_jobs.hpp"

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
  void skip_unless_there_are(int devices) const {
    if (devices_ < devices)
      GTEST_SKIP() << devices_ << " CUDA devices: NCCL needs one for each of " << devices << " ranks";
  }

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
  skip_unless_there_are(4);
  for (const int hosts : {2, 3, 4}) {
    for (const int each : {2, 3, 4}) {
      if (has_devices_for(hosts * each))
        run_plan_job({hosts, each, {by_nccl, by_nccl}, DevicePathChoice::nccl, 4});
    }
  }
}

TEST_F(DevicePlans, TheExchangeInsideHostsAndNcclBetweenThem) {
  skip_unless_there_are(4);
  for (const int hosts : {2, 3, 4}) {
    for (const int each : {2, 3, 4}) {
      if (has_devices_for(hosts * each)) {
        run_plan_job({hosts, each, {by_exchange, by_nccl}, DevicePathChoice::automatic, each});
      }
    }
  }
}

}  // namespace
}  // namespace ddl
