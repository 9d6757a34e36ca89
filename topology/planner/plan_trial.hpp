#pragma once

#include <algorithm>

#include "ddl/topology/plan.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/simulator.hpp"

namespace ddl::topology {

/// Simulates plans that predictions cannot tell apart, within a limit on transfers.
class PlanTrial {
 public:
  PlanTrial(const Topology& topology, const Placement& placement, const CostModel& cost)
      : topology_(&topology), placement_(placement), simulator_(topology, placement), cost_(cost) {}

  /// Most transfers that a choice among the best plans for `ranks` ranks may simulate: a few milliseconds up
  /// to 16 ranks, tens of milliseconds up to 64, none above.
  static double most_transfers(int ranks) { return ranks <= 16 ? 2000 : ranks <= 64 ? 20'000 : 0; }

  /// Simulates what the ranks run, with at most twice as many messages as the plan has.
  Simulation run(const Plan& plan) {
    SimulationOptions options;
    options.cost = cost_;
    options.element_bytes = size_of(plan.type);
    const std::size_t count = elements_of(plan);
    std::size_t messages = 0;
    for (const Program& program : lower_all(plan, count).ranks) {
      messages += as_index(std::ranges::count(program.steps, StepKind::send, &Step::kind));
    }
    return simulator_.run(schedule_to_run(plan, count, 0, *topology_, placement_, 2 * messages), options);
  }

 private:
  const Topology* topology_;
  Placement placement_;
  Simulator simulator_;
  CostModel cost_;
};

}  // namespace ddl::topology
