#pragma once

#include <string>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "topology/planner/planner_routes.hpp"

namespace ddl::topology {

/// A way to put ranks on the positions of a grid.
struct RankOrder {
  std::string name;
  std::vector<int> ranks;  ///< At each position.
};

/// Ranks of each host in turn, hosts by their lowest rank.
struct HostRanks {
  std::vector<int> sizes;  ///< Ranks of each host.
  bool equal = true;       ///< All have as many.
  bool contiguous = true;  ///< Ranks of a host are next to one another as they are placed.
};

/// Ranks of each host, hosts by their lowest rank.
std::vector<std::vector<int>> ranks_by_host(const Topology& topology, const Placement& placement);
HostRanks host_ranks(const Topology& topology, const Placement& placement);

/// "as placed" (0, 1, 2, ...) and "by host": hosts in the order of their lowest rank, the ranks of each along
/// the best ring of its links. Where the two are the same there is one, "by host". That is the one whose
/// narrowest edge is the widest, then the one with the least latency, then the one with the lowest ranks
/// first. Exact for up to 9 ranks a host, above that the nearest neighbour with improvements. O(ranks) for
/// hosts that are alike.
std::vector<RankOrder> rank_orders(const Topology& topology, const Placement& placement,
                                   PlannerRoutes& routes);

}  // namespace ddl::topology
