#pragma once

#include <string>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "topology/planner/planner_routes.hpp"

namespace ddl::topology {

/// An assignment of ranks to the positions of a grid, or several among which a plan divides its data.
struct RankOrder {
  std::string name;
  std::vector<int> ranks;                      ///< By position.
  std::vector<std::vector<int>> further = {};  ///< As `Plan::further_orders`.

  [[nodiscard]] double count() const { return 1 + static_cast<double>(further.size()); }
  /// Calls `visit` with each of them.
  void for_each(const auto& visit) const {
    visit(ranks);
    for (const std::vector<int>& order : further) visit(order);
  }
};

/// How ranks are spread over hosts.
struct HostRanks {
  std::vector<int> sizes;  ///< By host, in the order of the hosts' lowest ranks.
  bool equal = true;       ///< All sizes are equal.
  bool contiguous = true;  ///< As placed, the ranks of each host are adjacent.
};

/// The ranks of each host, hosts in the order of their lowest ranks.
std::vector<std::vector<int>> ranks_by_host(const Topology& topology, const Placement& placement);
HostRanks host_ranks(const Topology& topology, const Placement& placement);

/// "as placed" (0, 1, 2, ...) and "by host": hosts in the order of their lowest ranks, the ranks of each
/// along the best ring over its links. If both are the same, only "by host" is returned. The best ring has
/// the widest narrowest edge, then the least latency, then the lowest ranks first. Exact up to 9 ranks a
/// host; above that, nearest neighbour with improvements. O(ranks) for hosts that are alike.
///
/// Where links join the GPUs of a host pair by pair, as in a DGX-1V, another order has as many rings as a
/// short search finds such that no link is in more of them than it is times as wide as the narrowest.
std::vector<RankOrder> rank_orders(const Topology& topology, const Placement& placement,
                                   PlannerRoutes& routes);

}  // namespace ddl::topology
