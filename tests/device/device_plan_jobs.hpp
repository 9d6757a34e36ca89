#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ddl/device.hpp"
#include "ddl/topology/plan.hpp"

namespace ddl::test {

/// Ranks on emulated hosts, and their plans.
struct PlanJob {
  int hosts;
  int ranks_of_host;
  std::vector<topology::PlanDimension> dimensions;
  DevicePathChoice path = DevicePathChoice::automatic;
  int chunks = 1;
  std::vector<topology::Collective> collectives = {
      topology::Collective::all_reduce, topology::Collective::reduce_scatter,
      topology::Collective::all_gather, topology::Collective::broadcast, topology::Collective::reduce};

  [[nodiscard]] int ranks() const { return hosts * ranks_of_host; }
  [[nodiscard]] std::string host_of(int rank) const;
};

inline constexpr topology::PlanDimension by_exchange = {topology::Algorithm::two_shot,
                                                        topology::Carrier::cuda_ipc};
inline constexpr topology::PlanDimension by_nccl = {topology::Algorithm::ring, topology::Carrier::nccl};
inline constexpr topology::PlanDimension by_network = {topology::Algorithm::ring, topology::Carrier::network};
inline constexpr topology::PlanDimension by_host_memory = {topology::Algorithm::ring,
                                                           topology::Carrier::host_memory};

/// The value of ContextOptions::plans.
std::vector<topology::Plan> given_plans(const PlanJob& job);

/// One rank's part: checks that the communicator uses the given plans and that the results are right. Returns
/// the plans' hashes.
std::map<topology::Collective, std::uint64_t> run_plan_calls(Context& context, const PlanJob& job);

/// Expects that each rank has executed exactly the plans with these hashes, in each of their dimensions.
void expect_executed(const std::string& trace, const PlanJob& job,
                     const std::map<topology::Collective, std::uint64_t>& printed);

/// Does all of this with ranks that are threads.
void run_plan_job(const PlanJob& job);

}  // namespace ddl::test
