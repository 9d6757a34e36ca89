#pragma once

#include <string>
#include <vector>

#include "ddl/topology/planner.hpp"

namespace ddl::topology {

/// Plans between GPUs whose topology says what carries collectives. They go over all ranks at once, or first
/// inside hosts and then between them, in chunks; a network alone also executes the steps of any plan, which
/// the planner's search adds.
class DeviceCandidates {
 public:
  /// The topology must have `carriers()`, and outlive this.
  DeviceCandidates(const Topology& topology, const Placement& placement, const CostModel& cost);

  [[nodiscard]] const DeviceCarriers& carriers() const noexcept { return carriers_; }
  /// Without times, and without those that a network alone carries.
  [[nodiscard]] std::vector<Plan> of(const PlanRequest& request) const;
  /// Whether a network executes all of it.
  [[nodiscard]] static bool is_of_network(const Plan& plan);
  /// Whether the carriers execute it.
  [[nodiscard]] bool include(const Plan& plan) const;
  /// us of the carriers' calls beyond what the links take. `phases` of the plan, for one chunk: us of all and
  /// of its latencies alone, and the messages of a rank.
  struct PhaseTime {
    double all;
    double latency;
    double messages;
  };
  [[nodiscard]] double calls_us(const Plan& plan, const std::vector<PhaseTime>& phases) const;

 private:
  [[nodiscard]] double nccl_us(const Plan& plan, const Phase& phase, PhaseTime time, bool is_first) const;
  void add_by_dimension(const PlanRequest& request, const Plan& flat, std::vector<Plan>& plans) const;

  DeviceCarriers carriers_;
  const CostModel* cost_;
  int hosts_ = 0;
  bool has_dimensions_;        // as many ranks on each host, several hosts, several ranks
  std::string no_dimensions_;  // why not, where hosts differ
  std::vector<int> by_host_;   // all ranks
};

/// The request for plans whose steps a network takes: NCCL's modes ask for other plans.
PlanRequest for_network(PlanRequest request);

/// Those that the request's mode, decomposition and chunks ask for. All of them, and a note, where there are
/// none.
std::vector<Plan> narrowed(std::vector<Plan> plans, const PlanRequest& request,
                           std::vector<std::string>& notes);

}  // namespace ddl::topology
