#pragma once

#include "ddl/topology/plan.hpp"
#include "ddl/topology/simulator.hpp"

namespace ddl::topology {

/// Simulates plans that predictions cannot tell apart, within a limit on transfers.
class PlanTrial {
 public:
  PlanTrial(const Topology& topology, const Placement& placement, const CostModel& cost)
      : topology_(&topology), placement_(placement), simulator_(topology, placement), cost_(cost) {}

  /// Most transfers that a choice among the best plans for `ranks` ranks may simulate: a few milliseconds up
  /// to 16 ranks, tens of milliseconds up to 64, none above.
  static double most_transfers(int ranks);

  /// Simulates what the ranks run, with at most twice as many messages as the plan has.
  Simulation run(const Plan& plan);

 private:
  const Topology* topology_;
  Placement placement_;
  Simulator simulator_;
  CostModel cost_;
};

}  // namespace ddl::topology
