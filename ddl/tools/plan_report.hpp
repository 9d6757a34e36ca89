#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ddl/topology/planner.hpp"
#include "ddl/topology/simulator.hpp"
#include "ddl/topology/verifier.hpp"

namespace ddl::tools {

/// A plan with a name for people, and its simulated time if it was simulated.
struct RatedPlan {
  std::string name;
  topology::Plan plan;
  std::optional<double> simulated_us;
};

/// The results of ddl-plan. Parts that were not requested are empty.
struct PlanReport {
  std::string topology_name;
  std::string placement_name;  ///< "by host" or "round-robin"
  topology::Plan plan;
  double transfers = 0;  ///< Of the plan, as `Planner::transfers`.
  int root = 0;
  std::optional<topology::Verdict> verdict;
  std::optional<topology::Schedule> schedule;
  std::optional<topology::Simulation> simulation;
  std::string not_simulated;          ///< The reason for a missing simulation.
  std::vector<RatedPlan> alternatives;
  std::vector<RatedPlan> candidates;
  std::size_t candidates_in_all = 0;
};

/// The approximate number of transfers in the schedule that the ranks execute: those of the plan, and more
/// where ranks on `cpu` devices cut long transfers into messages.
double transfers_to_run(const topology::Plan& plan, topology::Planner& planner);

/// Simulates the plans in order. Skips plans with more than `most_of_one` transfers, and plans that would
/// exceed `most_of_all` transfers in total.
void rate(std::vector<RatedPlan>& plans, topology::Planner& planner, int root,
          topology::SimulationOptions options, double most_of_one, double most_of_all);

/// Alternatives to `chosen`: flat rings, and the best plans of each mode and of other decompositions.
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

/// The directions of links, the busiest first, and in the topology's order if equally busy.
std::vector<LinkUse> link_uses(const topology::Topology& topology, const topology::Simulation& simulation);

/// At most `most` groups of a dimension that exchange data, each as its ranks in the order of the grid; for a
/// broadcast or reduce the order starts at `root`. Leaves out members that only wait, behind a tree or off
/// the root's path. If the first dimension is ragged, later ones have a group for each list of segment
/// owners.
std::vector<std::vector<int>> groups_of(const topology::Plan& plan, int dimension, int root,
                                        std::size_t most);

/// The worst links of a dimension, e.g. "socket 32 GB/s": the farthest kind of link and the lowest bandwidth
/// on the routes between members of up to 16 of its groups.
std::string wires_of(const topology::Topology& topology, const topology::Placement& placement,
                     const topology::Plan& plan, int dimension, int root);

/// The plan, a table of its phases, its predicted time and the bound.
std::string plan_text(const topology::Planner& planner, const PlanReport& report);
/// Why this plan was chosen: the alternatives, the bottleneck, and advice.
std::string explanation_text(const topology::Planner& planner, const PlanReport& report);
/// "verified: ..." or the problem.
std::string verdict_text(const topology::Verdict& verdict);
/// Total time, phases, busiest links, critical path.
std::string simulation_text(const topology::Planner& planner, const PlanReport& report);
std::string candidates_text(const PlanReport& report);

/// One JSON object; its schema is in topology/README.md.
std::string report_json(const topology::Planner& planner, const PlanReport& report, bool explain);

/// A drawing of a plan on its machines, in Graphviz's language: each host with its packages, devices, NICs
/// and switches; links coloured by their utilisation in the simulation (grey without one); below, a row for
/// each dimension with a line through the ranks of each group. Draws 8 hosts, 48 nodes of each, and 8 groups.
std::string plan_dot(const topology::Planner& planner, const PlanReport& report);

}  // namespace ddl::tools
