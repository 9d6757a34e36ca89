#include "ddl/tools/plan_wiring.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/tools/plan_units.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/planner/plan_groups.hpp"

namespace ddl::tools {

using topology::LinkKind;
using topology::Plan;

std::vector<std::vector<int>> groups_of(const Plan& plan, int dimension, int root, std::size_t most) {
  std::vector<topology::Algorithm> algorithms;
  for (const topology::PlanDimension& each : plan.dimensions) algorithms.push_back(each.algorithm);
  const auto root_position = static_cast<int>(std::ranges::find(plan.order, root) - plan.order.begin());
  std::vector<std::vector<int>> groups;
  topology::PlanGroups(plan.collective, plan.decomposition, algorithms, plan.order, root_position)
      .for_each(dimension, [&](const topology::ProfiledGroup& group) {
        if (groups.size() < most) groups.emplace_back(group.ranks.begin(), group.ranks.end());
      });
  return groups;
}

std::string wires_of(const topology::Topology& topology, const topology::Placement& placement,
                     const Plan& plan, int dimension, int root) {
  constexpr std::array order = {LinkKind::memory, LinkKind::nvlink, LinkKind::pcie, LinkKind::socket,
                                LinkKind::network};
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
