#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ddl/topology/planner.hpp"
#include "ddl/topology/simulator.hpp"
#include "ddl/topology/verifier.hpp"

namespace ddl::tools {

/// A plan, by what name people know it, and its simulated time where it has been simulated.
struct RatedPlan {
  std::string name;
  topology::Plan plan;
  std::optional<double> simulated_us;
};

/// What ddl-plan has found out. Empty is what was not asked for.
struct PlanReport {
  std::string topology_name;
  std::string placement_name;  ///< "by host" or "round-robin"
  topology::Plan plan;
  int root = 0;
  std::optional<topology::Verdict> verdict;
  std::optional<topology::Schedule> schedule;
  std::optional<topology::Simulation> simulation;
  std::string simulation_conditions;  ///< Jitter and stragglers; empty if there are none.
  std::string not_simulated;          ///< Why there is no simulation.
  std::vector<RatedPlan> alternatives;
  std::vector<RatedPlan> candidates;
  std::size_t candidates_in_all = 0;
};

/// About how many transfers the schedule has that the ranks run: those of the plan, and more where ranks on
/// `cpu` devices cut long ones into messages.
double transfers_to_run(const topology::Plan& plan, const topology::Planner& planner);

/// A limit on the transfers that may still be simulated.
class SimulationBudget {
 public:
  SimulationBudget(double most_of_one, double most_of_all) : of_one_(most_of_one), of_all_(most_of_all) {}

  /// Takes so many transfers out of what is left, if it has enough.
  bool spend(double transfers);

 private:
  double of_one_;
  double of_all_;
};

/// Simulated time of each of the plans for which the budget suffices, in order.
void rate(std::vector<RatedPlan>& plans, topology::Planner& planner, int root,
          topology::SimulationOptions options, SimulationBudget budget);

/// What else there is: flat rings, the best plan of each mode, and of other decompositions. `chosen` is left
/// out.
std::vector<RatedPlan> alternatives_to(const topology::Plan& chosen, topology::Planner& planner,
                                       topology::PlanRequest request);

/// "2x2x4 by host, 2 x ring + two_shot, 16 chunks".
std::string short_name(const topology::Plan& plan);

struct LinkUse {
  std::string name;  ///< "h0/nic0 -> network"
  topology::Link link;
  std::uint64_t bytes = 0;
  double utilisation = 0;
};

/// The busiest first; of equally busy ones the first in the topology.
std::vector<LinkUse> link_uses(const topology::Topology& topology, const topology::Simulation& simulation);

struct KindUse {
  topology::LinkKind kind;
  std::uint64_t bytes = 0;
  std::size_t channels = 0;  ///< Directions of links that carried something.
  double highest = 0;        ///< Utilisation of the busiest.
};

/// Of each kind that is used, the most utilised first.
std::vector<KindUse> kind_uses(const topology::Topology& topology, const topology::Simulation& simulation);

}  // namespace ddl::tools
