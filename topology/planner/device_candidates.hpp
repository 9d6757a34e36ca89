#pragma once

#include <string>
#include <vector>

#include "ddl/topology/planner.hpp"
#include "topology/planner/rank_order.hpp"

namespace ddl::topology {

/// Plans between GPUs whose topology says what carries collectives. They go over all ranks at once, or in
/// chunks inside hosts first and then between them. A network carrier can also execute the steps of any plan;
/// the planner's search adds those.
class DeviceCandidates {
 public:
  /// `topology` must have `carriers()`. `rings`: those that NCCL is expected to find inside hosts. Refers to
  /// `cost`.
  DeviceCandidates(const Topology& topology, const Placement& placement, const CostModel& cost,
                   RankOrder rings);

  [[nodiscard]] const DeviceCarriers& carriers() const noexcept { return carriers_; }
  /// The plans for a request, without times, and without those that a network alone carries.
  [[nodiscard]] std::vector<Plan> of(const PlanRequest& request) const;
  /// Whether a network alone carries the plan.
  [[nodiscard]] static bool is_of_network(const Plan& plan);
  /// Whether the carriers can execute the plan.
  [[nodiscard]] bool include(const Plan& plan) const;
  /// us that the carriers' calls take beyond what the links take. `phases`: for each phase of the plan and
  /// one chunk, the us of the phase and of its latencies alone, and the messages of a rank.
  struct PhaseTime {
    double all;
    double latency;
    double messages;
  };
  [[nodiscard]] double calls_us(const Plan& plan, const std::vector<PhaseTime>& phases) const;

 private:
  [[nodiscard]] double nccl_us(const Plan& plan, const Phase& phase, PhaseTime time, bool is_first) const;
  void set_rings(Plan& plan) const;
  void add_by_dimension(const PlanRequest& request, const Plan& flat, std::vector<Plan>& plans) const;

  DeviceCarriers carriers_;
  const CostModel* cost_;
  int hosts_ = 0;
  bool has_dimensions_;        // several hosts, with equally many ranks each, more than one
  std::string no_dimensions_;  // the reason why not, if hosts differ
  std::vector<int> by_host_;   // all ranks, host by host
  RankOrder rings_;
};

/// Turns a request into one for plans whose steps a network executes: NCCL's modes ask for other plans.
PlanRequest for_network(PlanRequest request);

/// Keeps the plans that the request's mode, decomposition and chunks ask for. A wish that no plan meets is
/// dropped; for a mode or decomposition, a note says so.
std::vector<Plan> narrowed(std::vector<Plan> plans, const PlanRequest& request,
                           std::vector<std::string>& notes);

}  // namespace ddl::topology
