#include "topology/planner/rank_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "topology/plan/algorithms.hpp"

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

/// Finds as many rings as possible that use no link more often than it is wide, by a search of bounded
/// length.
class RingPacking {
 public:
  /// `widths`: of the link between two members, in rings; symmetric.
  explicit RingPacking(std::vector<std::vector<int>> widths) : left_(std::move(widths)) {
    for (const std::vector<int>& of_member : left_) {
      most_ = std::min(most_, as_index(std::accumulate(of_member.begin(), of_member.end(), 0)) / 2);
    }
    find_next();
  }

  [[nodiscard]] const std::vector<std::vector<int>>& best() const noexcept { return best_; }

 private:
  static constexpr int most_tried = 20'000;

  [[nodiscard]] bool is_over() const { return best_.size() >= most_ || tried_ > most_tried; }

  void find_next() {
    if (found_.size() > best_.size()) best_ = found_;
    std::vector<int> ring = {0};
    extend(ring);
  }

  void extend(std::vector<int>& ring) {
    const std::size_t last = as_index(ring.back());
    const bool closes = ring.size() == left_.size();
    for (std::size_t next = closes ? 0 : 1; next < (closes ? 1 : left_.size()); ++next) {
      const bool is_taken = !closes && std::ranges::find(ring, static_cast<int>(next)) != ring.end();
      if (is_over() || is_taken || left_[last][next] == 0) continue;
      ++tried_;
      use(last, next, -1);
      if (closes) {
        found_.push_back(ring);
        find_next();
        found_.pop_back();
      } else {
        ring.push_back(static_cast<int>(next));
        extend(ring);
        ring.pop_back();
      }
      use(last, next, 1);
    }
  }

  void use(std::size_t from, std::size_t to, int change) {
    left_[from][to] += change;
    left_[to][from] += change;
  }

  std::vector<std::vector<int>> left_;                // rings that a link has room for
  std::size_t most_ = (most_further_orders + 1) / 2;  // in a set
  std::vector<std::vector<int>> found_;
  std::vector<std::vector<int>> best_;
  int tried_ = 0;
};

/// The rings of one host, as indices into its ranks.
struct HostRings {
  std::vector<int> best;
  std::vector<std::vector<int>> together = {};  ///< Empty if they would share links.
};

/// Rings over links that join two members each, in both directions.
std::vector<std::vector<int>> rings_together(const Edges& edges,
                                             const std::vector<std::vector<bool>>& is_link) {
  const auto cost = [&](std::size_t i, std::size_t j) {
    return std::max(edges[i][j].first, edges[j][i].first);
  };
  const auto for_each_link = [&](const auto& visit) {
    for (std::size_t i = 0; i < edges.size(); ++i) {
      for (std::size_t j = 0; j < edges.size(); ++j) {
        if (is_link[i][j] && is_link[j][i]) visit(i, j);
      }
    }
  };
  double narrowest = 0;
  for_each_link([&](std::size_t i, std::size_t j) { narrowest = std::max(narrowest, cost(i, j)); });
  std::vector<std::vector<int>> widths(edges.size(), std::vector<int>(edges.size(), 0));
  for_each_link([&](std::size_t i, std::size_t j) {
    widths[i][j] = static_cast<int>(narrowest / cost(i, j) * (1 + 1e-9));
  });
  const RingPacking packing(std::move(widths));
  std::vector<std::vector<int>> rings;
  for (const std::vector<int>& ring : packing.best()) {
    rings.push_back(ring);
    rings.emplace_back(ring.rbegin(), ring.rend());
  }
  return rings;
}

HostRings rings_of_host(const std::vector<int>& ranks, PlannerRoutes& routes) {
  HostRings rings{std::vector<int>(ranks.size())};
  std::iota(rings.best.begin(), rings.best.end(), 0);
  if (ranks.size() < 3) return rings;
  Edges edges(ranks.size(), std::vector<EdgeCost>(ranks.size()));
  std::vector<std::vector<bool>> is_link(ranks.size(), std::vector<bool>(ranks.size(), false));
  bool is_uniform = true;  // any ring is as good as another
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (std::size_t j = 0; j < ranks.size(); ++j) {
      if (i == j) continue;
      const PlannedRoute route = routes.between(ranks[i], ranks[j]);
      edges[i][j] = {route.us_per_byte, route.latency};
      is_link[i][j] = route.resources.size() == 1 && !route.in_memory;
      is_uniform = is_uniform && edges[i][j] == edges[0][1];
    }
  }
  if (is_uniform) return rings;
  if (ranks.size() > most_exact) return {good_ring(edges)};
  rings.best = best_ring(edges);
  rings.together = rings_together(edges, is_link);
  return rings;
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
  std::vector<std::vector<int>> together(most_further_orders + 1);
  std::map<std::vector<int>, HostRings> known;  // by kind of host and places of the ranks
  for (const auto& ranks : ranks_by_host(topology, placement)) {
    std::vector<int> key = {routes.kind_of_host(routes.host_of(ranks[0]))};
    for (const int rank : ranks) key.push_back(routes.index_in_host(rank));
    const auto [entry, is_new] = known.try_emplace(std::move(key));
    HostRings& rings = entry->second;
    if (is_new) rings = rings_of_host(ranks, routes);
    const auto append = [&](const std::vector<int>& ring, std::vector<int>& to) {
      for (const int index : ring) to.push_back(ranks[as_index(index)]);
    };
    append(rings.best, by_host.ranks);
    together.resize(std::min(together.size(), rings.together.size()));
    for (std::size_t i = 0; i < together.size(); ++i) append(rings.together[i], together[i]);
  }
  if (by_host.ranks == orders[0].ranks) {
    orders[0].name = by_host.name;
  } else {
    orders.push_back(std::move(by_host));
  }
  if (!together.empty()) {
    orders.push_back({fmt::format("by host in {} rings", together.size()),
                      together.front(),
                      {together.begin() + 1, together.end()}});
  }
  return orders;
}

}  // namespace ddl::topology
