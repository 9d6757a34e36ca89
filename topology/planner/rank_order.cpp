#include "topology/planner/rank_order.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace ddl::topology {
namespace {

constexpr std::size_t most_exact = 9;
constexpr double unreachable = std::numeric_limits<double>::infinity();

/// Ranks of each host, hosts by their lowest rank.
std::vector<std::vector<int>> ranks_by_host(const std::vector<int>& host_of_rank) {
  std::map<int, std::size_t> index_of;
  std::vector<std::vector<int>> result;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const auto [entry, is_new] = index_of.try_emplace(host_of_rank[rank], result.size());
    if (is_new) result.emplace_back();
    result[entry->second].push_back(static_cast<int>(rank));
  }
  return result;
}

/// Between the ranks of a host, both ways together.
class Edges {
 public:
  Edges(const std::vector<int>& ranks, PlannerRoutes& routes)
      : size_(ranks.size()), cost_(size_ * size_), latency_(size_ * size_) {
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < size_; ++j) {
        if (i == j) continue;
        const PlannedRoute route = routes.between(ranks[i], ranks[j]);
        cost_[i * size_ + j] = route.us_per_byte;
        latency_[i * size_ + j] = route.latency;
      }
    }
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] double cost(std::size_t from, std::size_t to) const { return cost_[from * size_ + to]; }
  [[nodiscard]] double latency(std::size_t from, std::size_t to) const { return latency_[from * size_ + to]; }

  /// All alike: any ring is as good as another.
  [[nodiscard]] bool uniform() const {
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < size_; ++j) {
        if (i != j && (cost(i, j) != cost(0, 1) || latency(i, j) != latency(0, 1))) return false;
      }
    }
    return true;
  }
  /// What edges cost, each value once, ascending.
  [[nodiscard]] std::vector<double> costs() const {
    std::vector<double> result = cost_;
    std::ranges::sort(result);
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }

 private:
  std::size_t size_;
  std::vector<double> cost_;
  std::vector<double> latency_;
};

/// The ring from 0 with the least latency over edges of at most this cost; empty if there is none (Held and
/// Karp, 1962). The first such ring in lexicographic order.
std::vector<int> best_ring(const Edges& edges, double most_cost) {
  const std::size_t size = edges.size();
  const std::size_t sets = std::size_t{1} << size;
  // rest[set][at]: least latency from `at`, all of `set` seen, through all others back to 0.
  std::vector<double> rest(sets * size, unreachable);
  const auto step = [&](std::size_t from, std::size_t to) {
    return edges.cost(from, to) <= most_cost ? edges.latency(from, to) : unreachable;
  };
  for (std::size_t set = sets; set-- > 1;) {
    if ((set & 1) == 0) continue;
    for (std::size_t at = 0; at < size; ++at) {
      if ((set >> at & 1) == 0) continue;
      double& best = rest[set * size + at];
      if (set == sets - 1) best = step(at, 0);
      for (std::size_t next = 1; next < size; ++next) {
        if ((set >> next & 1) != 0) continue;
        best = std::min(best, step(at, next) + rest[(set | std::size_t{1} << next) * size + next]);
      }
    }
  }
  if (rest[1 * size + 0] == unreachable) return {};
  std::vector<int> ring = {0};
  std::size_t set = 1;
  for (std::size_t at = 0; set != sets - 1;) {
    std::size_t chosen = 0;
    double least = unreachable;
    for (std::size_t next = 1; next < size; ++next) {
      if ((set >> next & 1) != 0) continue;
      const double through = step(at, next) + rest[(set | std::size_t{1} << next) * size + next];
      // Sums in another order differ in the last bits.
      if (through < least * (1 - 1e-12)) {
        least = through;
        chosen = next;
      }
    }
    ring.push_back(static_cast<int>(chosen));
    set |= std::size_t{1} << chosen;
    at = chosen;
  }
  return ring;
}

/// Nearest neighbour from 0, then exchanges of two edges while they help.
std::vector<int> good_ring(const Edges& edges) {
  const std::size_t size = edges.size();
  const auto worth = [&](std::size_t from, std::size_t to) {
    return std::pair(edges.cost(from, to), edges.latency(from, to));
  };
  std::vector<int> ring = {0};
  std::vector<bool> seen(size);
  seen[0] = true;
  while (ring.size() < size) {
    const auto at = static_cast<std::size_t>(ring.back());
    std::size_t chosen = 0;
    for (std::size_t next = 1; next < size; ++next) {
      if (seen[next]) continue;
      if (chosen == 0 || worth(at, next) < worth(at, chosen)) chosen = next;
    }
    seen[chosen] = true;
    ring.push_back(static_cast<int>(chosen));
  }
  const auto edge = [&](std::size_t i, std::size_t j) {
    return worth(static_cast<std::size_t>(ring[i]), static_cast<std::size_t>(ring[j % size]));
  };
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
  const Edges edges(ranks, routes);
  if (edges.uniform()) return ring;
  if (ranks.size() > most_exact) return good_ring(edges);
  for (const double cost : edges.costs()) {
    auto found = best_ring(edges, cost);
    if (!found.empty()) return found;
  }
  return ring;
}

}  // namespace

std::vector<std::vector<int>> ranks_by_host(const Topology& topology, const Placement& placement) {
  std::vector<int> host_of_rank;
  for (const int device : placement) {
    const int node = topology.devices()[static_cast<std::size_t>(device)];
    host_of_rank.push_back(topology.nodes()[static_cast<std::size_t>(node)].host);
  }
  return ranks_by_host(host_of_rank);
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

std::vector<RankOrder> rank_orders(const Placement& placement, PlannerRoutes& routes) {
  std::vector<RankOrder> orders(1);
  orders[0].name = "as placed";
  orders[0].ranks.resize(placement.size());
  std::iota(orders[0].ranks.begin(), orders[0].ranks.end(), 0);

  std::vector<int> host_of_rank;
  for (int rank = 0; rank < routes.ranks(); ++rank) host_of_rank.push_back(routes.host_of(rank));
  RankOrder by_host{"by host", {}};
  std::map<std::vector<int>, std::vector<int>> known;  // of hosts that are alike, with the same devices
  for (const auto& ranks : ranks_by_host(host_of_rank)) {
    std::vector<int> key = {routes.kind_of_host(routes.host_of(ranks[0]))};
    for (const int rank : ranks) key.push_back(routes.index_in_host(rank));
    const auto [entry, is_new] = known.try_emplace(std::move(key));
    if (is_new) entry->second = ring_of_host(ranks, routes);
    for (const int index : entry->second) by_host.ranks.push_back(ranks[static_cast<std::size_t>(index)]);
  }
  if (by_host.ranks == orders[0].ranks) {
    orders[0].name = by_host.name;
  } else {
    orders.push_back(std::move(by_host));
  }
  return orders;
}

}  // namespace ddl::topology
