#include "ddl/tools/plan_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "ddl/topology/program.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/planner/plan_groups.hpp"
#include "topology/planner/rank_order.hpp"
#include "topology/program/passes.hpp"
#include "topology/text.hpp"

namespace ddl::tools {
namespace {

using topology::Algorithm;
using topology::Decomposition;
using topology::Mode;
using topology::Plan;
using topology::PlanRequest;
using topology::Topology;

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

double transfers_to_run(const Plan& plan, topology::Planner& planner) {
  const Topology& topology = planner.topology();
  const int device = planner.placement().front();
  const int node = topology.node_of_device(device);
  if (topology.node(node).kind != topology::NodeKind::cpu) return planner.transfers(plan);
  double bytes = 0;
  for (const topology::Phase& phase : phases_of(plan)) bytes += figures_of(plan, phase).bytes_per_rank;
  const topology::MessageSizes most = topology::message_bytes_of(plan.collective, plan.bytes);
  return planner.transfers(plan) +
         bytes * plan.decomposition.ranks() /
             static_cast<double>(topology.hosts().size() == 1 ? most.inside_host : most.between_hosts);
}

void rate(std::vector<RatedPlan>& plans, topology::Planner& planner, int root,
          topology::SimulationOptions options, double most_of_one, double most_of_all) {
  for (RatedPlan& rated : plans) {
    const double transfers = transfers_to_run(rated.plan, planner);
    if (transfers > std::min(most_of_one, most_of_all)) continue;
    most_of_all -= transfers;
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
  std::vector<std::pair<Algorithm, int>> runs;  // consecutive dimensions with the same algorithm
  for (int d = 0; d < plan.decomposition.dimensions(); ++d) {
    if (plan.decomposition.size(d) == 1 && plan.decomposition.ranks() > 1) continue;
    const Algorithm algorithm = plan.dimensions[as_index(d)].algorithm;
    if (runs.empty() || runs.back().first != algorithm) runs.emplace_back(algorithm, 0);
    ++runs.back().second;
  }
  std::vector<std::string> algorithms;
  for (const auto& [algorithm, times] : runs) {
    algorithms.push_back((times > 1 ? fmt::format("{} x ", times) : "") + std::string(to_string(algorithm)));
  }
  return fmt::format("{} {}, {}, {} chunk{}", to_string(plan.decomposition), plan.order_name,
                     fmt::join(algorithms, " + "), plan.chunks, plan.chunks == 1 ? "" : "s");
}

std::vector<LinkUse> link_uses(const Topology& topology, const topology::Simulation& simulation) {
  std::vector<LinkUse> result;
  for (const topology::ChannelUse& use : simulation.channels) {
    const topology::Link& link = topology.link(topology::link_of(use.channel));
    const auto [from, to] =
        use.channel % 2 == 0 ? std::pair(link.from, link.to) : std::pair(link.to, link.from);
    result.push_back({fmt::format("{} -> {}", topology.node(from).name, topology.node(to).name), link,
                      use.bytes, use.utilisation});
  }
  std::ranges::stable_sort(result, std::greater<>{}, &LinkUse::utilisation);
  return result;
}

std::vector<std::vector<int>> groups_of(const Plan& plan, int dimension, int root, std::size_t most) {
  std::vector<topology::Algorithm> algorithms;
  for (const topology::PlanDimension& each : plan.dimensions) algorithms.push_back(each.algorithm);
  std::vector<std::vector<int>> groups;
  const topology::RankOrder orders{plan.order_name, plan.order, plan.further_orders};
  orders.for_each([&](const std::vector<int>& order) {
    const auto root_position = static_cast<int>(std::ranges::find(order, root) - order.begin());
    topology::PlanGroups(plan.collective, plan.decomposition, algorithms, order, root_position)
        .of({topology::PhaseKind::all_gather, dimension})
        .for_each([&](const topology::ProfiledGroup& group) {
          if (groups.size() < most) groups.emplace_back(group.ranks.begin(), group.ranks.end());
        });
  });
  return groups;
}

std::string wires_of(const topology::Topology& topology, const topology::Placement& placement,
                     const Plan& plan, int dimension, int root) {
  constexpr std::array order = {topology::LinkKind::memory, topology::LinkKind::nvlink,
                                topology::LinkKind::pcie, topology::LinkKind::socket,
                                topology::LinkKind::network};
  constexpr std::size_t most_groups = 16;
  constexpr std::size_t most_members = 64;
  std::size_t farthest = 0;
  double narrowest = 0;
  for (const std::vector<int>& group : groups_of(plan, dimension, root, most_groups)) {
    const std::size_t members = std::min(group.size(), most_members);
    for (std::size_t i = 0; i < members && group.size() > 1; ++i) {
      const int from = topology.node_of_device(placement[as_index(group[i])]);
      const int to = topology.node_of_device(placement[as_index(group[(i + 1) % group.size()])]);
      for (const topology::Channel channel : topology.route(from, to)) {
        const topology::Link& link = topology.link(topology::link_of(channel));
        farthest = std::max(farthest, as_index(std::ranges::find(order, link.kind) - order.begin()));
        narrowest = narrowest == 0 ? link.bandwidth : std::min(narrowest, link.bandwidth);
      }
    }
  }
  if (narrowest == 0) return "-";
  return fmt::format("{} {:.4g} GB/s", to_string(order[farthest]), narrowest);
}

}  // namespace ddl::tools
