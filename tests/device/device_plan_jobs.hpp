#pragma once

#include <vector>

#include "ddl/device.hpp"
#include "ddl/topology/plan.hpp"

namespace ddl::test {

/// Ranks that are threads, on hosts that they pretend to be on, and the plan that they are given.
struct PlanJob {
  int hosts;
  int ranks_of_host;
  std::vector<topology::PlanDimension> dimensions;
  DevicePathChoice path = DevicePathChoice::automatic;
  int chunks = 1;
};

inline constexpr topology::PlanDimension by_exchange = {topology::Algorithm::two_shot,
                                                        topology::Carrier::cuda_ipc};
inline constexpr topology::PlanDimension by_nccl = {topology::Algorithm::ring, topology::Carrier::nccl};
inline constexpr topology::PlanDimension by_network = {topology::Algorithm::ring, topology::Carrier::network};

/// All-reduces, whose results are right, and whose trace has the plan that the communicator prints in each of
/// its dimensions, and no other.
void run_plan_job(const PlanJob& job);

}  // namespace ddl::test
