#include "ddl/tools/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ddl/tools/plan_wiring.hpp"
#include "ddl/topology/program.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/plan/phases.hpp"

namespace ddl::tools {
namespace {

using topology::Algorithm;
using topology::Decomposition;
using topology::Mode;
using topology::Plan;
using topology::PlanRequest;
using topology::Simulation;
using topology::Topology;

std::size_t as_index(int i) { return static_cast<std::size_t>(i); }

constexpr std::size_t most_candidates_looked_at = 20'000;
constexpr std::size_t most_decompositions = 5;

bool is_flat_ring(const Plan& plan) {
  for (int d = 0; d < plan.decomposition.dimensions(); ++d) {
    const int size = plan.decomposition.size(d);
    if (size > 1 &&
        (size != plan.decomposition.ranks() || !traits_of(plan.dimensions[as_index(d)].algorithm).is_ring)) {
      return false;
    }
  }
  return true;
}

}  // namespace

double transfers_to_run(const Plan& plan, const topology::Planner& planner) {
  const Topology& topology = planner.topology();
  const int device = planner.placement().front();
  const int node = topology.devices()[as_index(device)];
  if (topology.nodes()[as_index(node)].kind != topology::NodeKind::cpu) return transfers_of(plan);
  double bytes = 0;
  for (const topology::Phase& phase : phases_of(plan)) bytes += figures_of(plan, phase).bytes_per_rank;
  const auto& most = topology::message_bytes;
  return transfers_of(plan) +
         bytes * plan.decomposition.ranks() /
             static_cast<double>(topology.hosts().size() == 1 ? most.inside_host : most.between_hosts);
}

bool SimulationBudget::spend(double transfers) {
  if (transfers > of_one_ || transfers > of_all_) return false;
  of_all_ -= transfers;
  return true;
}

void rate(std::vector<RatedPlan>& plans, topology::Planner& planner, int root,
          topology::SimulationOptions options, SimulationBudget budget) {
  for (RatedPlan& rated : plans) {
    if (!budget.spend(transfers_to_run(rated.plan, planner))) continue;
    options.element_bytes = size_of(rated.plan.type);
    const auto schedule = topology::schedule_to_run(rated.plan, topology::elements_of(rated.plan), root,
                                                    planner.topology(), planner.placement());
    rated.simulated_us =
        topology::simulate(planner.topology(), planner.placement(), schedule, options).total_us;
  }
}

std::vector<RatedPlan> alternatives_to(const Plan& chosen, topology::Planner& planner, PlanRequest request) {
  std::vector<RatedPlan> result;
  std::set<std::uint64_t> seen = {hash(chosen)};
  const auto add = [&](std::string name, Plan plan) {
    if (seen.insert(hash(plan)).second) result.push_back({std::move(name), std::move(plan), {}});
  };
  request.chunks.reset();

  PlanRequest flat = request;
  flat.mode = Mode::rings;
  flat.decomposition = Decomposition({chosen.decomposition.ranks()}, {});
  std::set<std::string> orders;
  for (Plan& plan : planner.candidates(flat)) {
    if (!is_flat_ring(plan) || !orders.insert(plan.order_name).second) continue;
    const std::string name = "flat ring, ranks " + plan.order_name;
    add(name, std::move(plan));
  }

  request.decomposition.reset();
  for (const Mode mode :
       {Mode::explore, Mode::rings, Mode::nccl, Mode::nccl_per_dimension, Mode::scatter_gather, Mode::mpi}) {
    request.mode = mode;
    add(fmt::format("best of mode {} ({})", letter_of(mode), to_string(mode)), planner.choose(request));
  }

  request.mode = Mode::explore;
  std::set<std::string> decompositions = {to_string(chosen.decomposition)};
  for (const RatedPlan& rated : result) decompositions.insert(to_string(rated.plan.decomposition));
  std::size_t added = 0;
  for (Plan& plan : planner.candidates(request, most_candidates_looked_at)) {
    const std::string name = to_string(plan.decomposition);
    if (added == most_decompositions) break;
    if (!decompositions.insert(name).second) continue;
    add("best of " + name, std::move(plan));
    ++added;
  }
  std::ranges::stable_sort(result, {}, [](const RatedPlan& rated) { return rated.plan.predicted_us; });
  return result;
}

std::string short_name(const Plan& plan) {
  std::vector<std::pair<Algorithm, int>> runs;  // of dimensions with the same algorithm
  for (int d = 0; d < plan.decomposition.dimensions(); ++d) {
    if (plan.decomposition.size(d) == 1 && plan.decomposition.ranks() > 1) continue;
    const Algorithm algorithm = plan.dimensions[as_index(d)].algorithm;
    if (runs.empty() || runs.back().first != algorithm) runs.emplace_back(algorithm, 0);
    ++runs.back().second;
  }
  std::string algorithms;
  for (const auto& [algorithm, times] : runs) {
    if (!algorithms.empty()) algorithms += " + ";
    if (times > 1) algorithms += fmt::format("{} x ", times);
    algorithms += to_string(algorithm);
  }
  return fmt::format("{} {}, {}, {} chunk{}", to_string(plan.decomposition), plan.order_name, algorithms,
                     plan.chunks, plan.chunks == 1 ? "" : "s");
}

std::vector<LinkUse> link_uses(const Topology& topology, const Simulation& simulation) {
  std::vector<LinkUse> result;
  for (const topology::ChannelUse& use : simulation.channels) {
    const topology::Link& link = topology.links()[as_index(topology::link_of(use.channel))];
    const bool forth = use.channel % 2 == 0;
    const std::string& from = topology.nodes()[as_index(forth ? link.from : link.to)].name;
    const std::string& to = topology.nodes()[as_index(forth ? link.to : link.from)].name;
    result.push_back({fmt::format("{} -> {}", from, to), link, use.bytes, use.utilisation});
  }
  std::ranges::stable_sort(result, std::greater<>{}, &LinkUse::utilisation);
  return result;
}

std::vector<KindUse> kind_uses(const Topology& topology, const Simulation& simulation) {
  std::map<topology::LinkKind, KindUse> kinds;
  for (const topology::ChannelUse& use : simulation.channels) {
    const topology::LinkKind kind = topology.links()[as_index(topology::link_of(use.channel))].kind;
    KindUse& sum = kinds[kind];
    sum.kind = kind;
    sum.bytes += use.bytes;
    sum.channels += use.bytes > 0 ? 1 : 0;
    sum.highest = std::max(sum.highest, use.utilisation);
  }
  std::vector<KindUse> result;
  for (const auto& [kind, use] : kinds) result.push_back(use);
  std::ranges::stable_sort(result, std::greater<>{}, &KindUse::highest);
  return result;
}

}  // namespace ddl::tools
