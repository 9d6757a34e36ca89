#include "topology/planner/rank_order.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace ddl::topology {
namespace {

constexpr std::size_t most_exact = 9;

/// The cost of an edge of a ring: us a byte, then latency.
using EdgeCost = std::pair<double, double>;

/// The edges between the ranks of a host.
using Edges = std::vector<std::vector<EdgeCost>>;

const EdgeCost& cost_of(const Edges& edges, int from, int to) { return edges[as_index(from)][as_index(to)]; }

/// Of all rings from 0, the one whose costliest edge costs the least, then with the least latency, then first
/// in lexicographic order.
std::vector<int> best_ring(const Edges& edges) {
  std::vector<int> ring(edges.size());
  std::iota(ring.begin(), ring.end(), 0);
  std::vector<int> best;
  EdgeCost least;
  do {
    EdgeCost cost{};
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const auto& [us_per_byte, latency] = cost_of(edges, ring[i], ring[(i + 1) % ring.size()]);
      cost = {std::max(cost.first, us_per_byte), cost.second + latency};
    }
    // Sums in different orders differ in the last bits.
    const EdgeCost clearly_less = {cost.first, cost.second / (1 - 1e-12)};
    if (best.empty() || clearly_less < least) {
      best = ring;
      least = cost;
    }
  } while (std::next_permutation(ring.begin() + 1, ring.end()));
  return best;
}

/// Nearest neighbour from 0, then exchanges of two edges as long as they help.
std::vector<int> good_ring(const Edges& edges) {
  const std::size_t size = edges.size();
  std::vector<int> ring(size);
  std::iota(ring.begin(), ring.end(), 0);
  for (auto at = ring.begin(); at + 1 != ring.end(); ++at) {
    const auto nearest = std::min_element(at + 1, ring.end(), [&](int a, int b) {
      return std::pair(cost_of(edges, *at, a), a) < std::pair(cost_of(edges, *at, b), b);
    });
    std::iter_swap(at + 1, nearest);
  }
  const auto edge = [&](std::size_t i, std::size_t j) { return cost_of(edges, ring[i], ring[j % size]); };
  const auto larger = [](auto a, auto b) { return std::max(a, b); };
  for (bool is_better = true; is_better;) {
    is_better = false;
    for (std::size_t i = 0; i + 2 < size; ++i) {
      for (std::size_t j = i + 2; j < size && size <= 64; ++j) {
        if ((j + 1) % size == i) continue;
        if (larger(edge(i, j), edge(i + 1, j + 1)) < larger(edge(i, i + 1), edge(j, j + 1))) {
          std::reverse(ring.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                       ring.begin() + static_cast<std::ptrdiff_t>(j) + 1);
          is_better = true;
        }
      }
    }
  }
  return ring;
}

std::vector<int> ring_of_host(const std::vector<int>& ranks, PlannerRoutes& routes) {
  std::vector<int> ring(ranks.size());
  std::iota(ring.begin(), ring.end(), 0);
  if (ranks.size() < 3) return ring;
  Edges edges(ranks.size(), std::vector<EdgeCost>(ranks.size()));
  bool is_uniform = true;  // any ring is as good as another
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (std::size_t j = 0; j < ranks.size(); ++j) {
      if (i == j) continue;
      const PlannedRoute route = routes.between(ranks[i], ranks[j]);
      edges[i][j] = {route.us_per_byte, route.latency};
      is_uniform = is_uniform && edges[i][j] == edges[0][1];
    }
  }
  if (is_uniform) return ring;
  return ranks.size() > most_exact ? good_ring(edges) : best_ring(edges);
}

}  // namespace

std::vector<std::vector<int>> ranks_by_host(const Topology& topology, const Placement& placement) {
  std::map<int, std::size_t> index_of;
  std::vector<std::vector<int>> result;
  for (std::size_t rank = 0; rank < placement.size(); ++rank) {
    const int host = topology.node(topology.node_of_device(placement[rank])).host;
    const auto [entry, is_new] = index_of.try_emplace(host, result.size());
    if (is_new) result.emplace_back();
    result[entry->second].push_back(static_cast<int>(rank));
  }
  return result;
}

HostRanks host_ranks(const Topology& topology, const Placement& placement) {
  HostRanks result;
  for (const auto& ranks : ranks_by_host(topology, placement)) {
    result.sizes.push_back(static_cast<int>(ranks.size()));
    result.equal &= result.sizes.back() == result.sizes.front();
    result.contiguous &= ranks.back() - ranks.front() + 1 == result.sizes.back();
  }
  return result;
}

std::vector<RankOrder> rank_orders(const Topology& topology, const Placement& placement,
                                   PlannerRoutes& routes) {
  std::vector<RankOrder> orders(1);
  orders[0].name = "as placed";
  orders[0].ranks.resize(placement.size());
  std::iota(orders[0].ranks.begin(), orders[0].ranks.end(), 0);

  RankOrder by_host{"by host", {}};
  std::map<std::vector<int>, std::vector<int>> known;  // by kind of host and places of the ranks
  for (const auto& ranks : ranks_by_host(topology, placement)) {
    std::vector<int> key = {routes.kind_of_host(routes.host_of(ranks[0]))};
    for (const int rank : ranks) key.push_back(routes.index_in_host(rank));
    const auto [entry, is_new] = known.try_emplace(std::move(key));
    if (is_new) entry->second = ring_of_host(ranks, routes);
    for (const int index : entry->second) by_host.ranks.push_back(ranks[as_index(index)]);
  }
  if (by_host.ranks == orders[0].ranks) {
    orders[0].name = by_host.name;
  } else {
    orders.push_back(std::move(by_host));
  }
  return orders;
}

}  // namespace ddl::topology
