#pragma once

#include "ddl/topology/plan.hpp"
#include "ddl/topology/simulator.hpp"

namespace ddl::topology {

/// Simulates plans that a prediction could not tell apart, within a limit on transfers.
class PlanTrial {
 public:
  PlanTrial(const Topology& topology, const Placement& placement, const CostModel& cost)
      : topology_(&topology), placement_(placement), simulator_(topology, placement), cost_(cost) {}

  /// Transfers that a choice among the best plans for so many ranks may simulate: a few milliseconds up to
  /// 16 ranks, tens of milliseconds up to 64, none for more.
  static double most_transfers(int ranks);

  /// What the ranks run, in at most twice as many messages as the plan has.
  Simulation run(const Plan& plan);

 private:
  const Topology* topology_;
  Placement placement_;
  Simulator simulator_;
  CostModel cost_;
};

}  // namespace ddl::topology
