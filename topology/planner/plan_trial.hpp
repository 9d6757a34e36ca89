#pragma once

#include <algorithm>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/simulator.hpp"
#include "topology/plan/algorithms.hpp"

namespace ddl::topology {

/// Simulates plans that predictions cannot tell apart, within a limit on transfers.
class PlanTrial {
 public:
  PlanTrial(const Topology& topology, const Placement& placement, const CostModel& cost)
      : topology_(&topology), placement_(placement), simulator_(topology, placement), cost_(cost) {
    for (const int device : placement) {
      is_on_gpus_ &= topology.node(topology.node_of_device(device)).kind == NodeKind::gpu;
    }
  }

  /// Most transfers that a choice among the best plans for `ranks` ranks may simulate: some ten milliseconds
  /// up to 16 ranks, a tenth of a second up to 64, none above.
  static double most_transfers(int ranks) { return ranks <= 16 ? 10'000 : ranks <= 64 ? 60'000 : 0; }

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

  /// How many times as long as simulated a plan for `bytes` bytes in `chunks` chunks takes over TCP between
  /// hosts of CPUs, if its other fields are those of `plan`.
  [[nodiscard]] double tcp_slowdown(const Plan& plan, std::uint64_t bytes, int chunks) const {
    TcpUse use;
    for (int d = 0; d < plan.decomposition.dimensions() && !is_on_gpus_; ++d) {
      const PlanDimension& dimension = plan.dimensions[as_index(d)];
      const AlgorithmTraits& traits = traits_of(dimension.algorithm);
      if (plan.decomposition.size(d) == 1) continue;
      if (dimension.carrier == Carrier::shared_memory) {
        use.all_ranks_send &= !traits.leaves_one;
      } else {
        ++use.dimensions;
        use.is_ring &= traits.is_ring || plan.decomposition.size(d) == 2;
      }
    }
    return cost_.tcp_slowdown(use, static_cast<double>(bytes), chunks);
  }

 private:
  const Topology* topology_;
  Placement placement_;
  bool is_on_gpus_ = true;
  Simulator simulator_;
  CostModel cost_;
};

}  // namespace ddl::topology
