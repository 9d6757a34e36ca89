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

/// Simulated time of the plans, in order: of each that has at most `most_of_one` transfers, and that those
/// before it leave room for in `most_of_all`.
void rate(std::vector<RatedPlan>& plans, topology::Planner& planner, int root,
          topology::SimulationOptions options, double most_of_one, double most_of_all);

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

/// What the plan is, a table of its phases, predicted time and bound.
std::string plan_text(const topology::Planner& planner, const PlanReport& report);
/// Why it is this plan: what else there is, where the time goes, and what a person can do.
std::string explanation_text(const topology::Planner& planner, const PlanReport& report);
/// "verified: ..." or what is wrong.
std::string verdict_text(const topology::Verdict& verdict);
/// Total, phases, busiest links, critical path.
std::string simulation_text(const topology::Planner& planner, const PlanReport& report);
std::string candidates_text(const PlanReport& report);

/// One JSON object; its schema is in topology/README.md.
std::string report_json(const topology::Planner& planner, const PlanReport& report, bool explain);

/// A picture of a plan on its machines: each host with its packages, devices, NICs and switches; links
/// coloured by how busy the simulation finds them (grey if there is none); below, each group of each
/// dimension as a line with a stop at each of its ranks. At most 16 hosts, and 16 devices a host; the rest is
/// counted. Self-contained SVG 1.1; a pure function of its arguments.
std::string plan_svg(const topology::Planner& planner, const PlanReport& report);

}  // namespace ddl::tools
