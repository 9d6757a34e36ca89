#include "ddl/topology/physical_bound.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "ddl/error.hpp"

namespace ddl::topology {
namespace {

constexpr double bytes_per_us = 1e3;  // in a GB/s

/// Links that are taken away, level by level.
enum class Level { between_switches, network, socket, pcie, all };
constexpr Level levels[] = {Level::between_switches, Level::network, Level::socket, Level::pcie, Level::all};

bool is_cut(const Topology& topology, const Link& link, Level level) {
  const auto is_switch = [&](int node) {
    return topology.nodes()[static_cast<std::size_t>(node)].kind == NodeKind::network;
  };
  switch (level) {
    case Level::between_switches:
      return is_switch(link.from) && is_switch(link.to);
    case Level::network:
      return link.kind == LinkKind::network;
    case Level::socket:
      return link.kind == LinkKind::network || link.kind == LinkKind::socket;
    case Level::pcie:
      return link.kind == LinkKind::network || link.kind == LinkKind::socket || link.kind == LinkKind::pcie;
    case Level::all:
      return true;
  }
  return true;
}

/// Sets of nodes, joined one pair at a time.
class Components {
 public:
  explicit Components(std::size_t nodes) : parent_(nodes) { std::iota(parent_.begin(), parent_.end(), 0); }

  int root(int node) {
    while (at(node) != node) node = at(node) = at(at(node));
    return node;
  }
  void join(int a, int b) { at(root(a)) = root(b); }

 private:
  int& at(int node) { return parent_[static_cast<std::size_t>(node)]; }
  std::vector<int> parent_;
};

/// What the links that leave a group can carry, in bytes a us.
struct Capacity {
  double one_way = 0;    ///< Out of it, and as much into it.
  double both_ways = 0;  ///< Out and into it together: half-duplex links count once.
};

/// What must leave and enter groups, over what can.
double time_across(const Topology& topology, const Placement& placement, Level level, Collective collective,
                   double bytes) {
  Components components(topology.nodes().size());
  for (const Link& link : topology.links()) {
    if (!is_cut(topology, link, level)) components.join(link.from, link.to);
  }
  std::vector<int> group_of(topology.nodes().size(), -1);  // of a component's root
  int groups = 0;
  std::vector<double> ranks_of;
  for (const int device : placement) {
    const int node = topology.devices()[static_cast<std::size_t>(device)];
    int& group = group_of[static_cast<std::size_t>(components.root(node))];
    if (group < 0) {
      group = groups++;
      ranks_of.push_back(0);
    }
    ++ranks_of[static_cast<std::size_t>(group)];
  }
  if (groups < 2) return 0;

  std::vector<Capacity> capacity(static_cast<std::size_t>(groups));
  Capacity all;
  for (const Link& link : topology.links()) {
    const int from = components.root(link.from);
    const int to = components.root(link.to);
    if (from == to) continue;
    const bool is_half = link.duplex == Duplex::half;
    const double one = link.bandwidth * bytes_per_us;
    int ends = 0;
    for (const int root : {from, to}) {
      const int group = group_of[static_cast<std::size_t>(root)];
      if (group < 0) continue;
      ++ends;
      capacity[static_cast<std::size_t>(group)].one_way += one;
      capacity[static_cast<std::size_t>(group)].both_ways += is_half ? one : 2 * one;
      all.both_ways += is_half ? one : 2 * one;
    }
    // A byte that crosses a half-duplex link between two groups leaves one of them: the link counts once.
    if (ends > 0) all.one_way += is_half ? one : ends * one;
  }
  const auto smaller = [](const Capacity& a, const Capacity& b) { return a.one_way < b.one_way; };

  const double others = groups - 1;
  if (collective == Collective::all_reduce) {
    const double total = 2 * bytes * others;
    double result = std::max(total / all.one_way, 2 * total / all.both_ways);
    for (const Capacity& group : capacity) {
      result = std::max({result, bytes / group.one_way, 2 * bytes / group.both_ways});
    }
    return result;
  }
  if (collective == Collective::reduce_scatter || collective == Collective::all_gather) {
    const double total = bytes * others;
    double result = std::max(total / all.one_way, 2 * total / all.both_ways);
    for (std::size_t i = 0; i < capacity.size(); ++i) {
      // One of them goes one way, the other one back.
      const double own = bytes * ranks_of[i] / static_cast<double>(placement.size());
      result =
          std::max({result, std::max(own, bytes - own) / capacity[i].one_way, bytes / capacity[i].both_ways});
    }
    return result;
  }
  // Whatever the root: the narrowest group may be its own.
  std::ranges::sort(capacity, smaller);
  return std::max(
      {bytes * others / all.one_way, bytes / capacity[1].one_way, bytes / capacity.back().one_way});
}

/// Least latency from a node to each, whatever lies between.
std::vector<double> latencies_from(const Topology& topology, int start) {
  std::vector<double> latency(topology.nodes().size(), std::numeric_limits<double>::infinity());
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  latency[static_cast<std::size_t>(start)] = 0;
  queue.emplace(0, start);
  while (!queue.empty()) {
    const auto [so_far, node] = queue.top();
    queue.pop();
    if (so_far > latency[static_cast<std::size_t>(node)]) continue;
    for (const int index : topology.links_at(node)) {
      const int other = topology.other_end(index, node);
      const double through = so_far + topology.links()[static_cast<std::size_t>(index)].latency;
      if (through >= latency[static_cast<std::size_t>(other)]) continue;
      latency[static_cast<std::size_t>(other)] = through;
      queue.emplace(through, other);
    }
  }
  return latency;
}

/// Latency between two ranks that are far apart: from any one, the farthest, and from that the farthest.
double longest_latency(const Topology& topology, const Placement& placement) {
  const auto node_of = [&](int device) { return topology.devices()[static_cast<std::size_t>(device)]; };
  int start = node_of(placement.front());
  double longest = 0;
  for (int sweep = 0; sweep < 2; ++sweep) {
    const auto latency = latencies_from(topology, start);
    for (const int device : placement) {
      const double found = latency[static_cast<std::size_t>(node_of(device))];
      if (found <= longest) continue;
      longest = found;
      start = node_of(device);
    }
  }
  return longest;
}

}  // namespace

double physical_bound(const Topology& topology, const Placement& placement, Collective collective,
                      std::uint64_t bytes) {
  require_valid(topology, placement);
  if (placement.size() == 1 || (bytes == 0 && collective != Collective::barrier)) return 0;
  double bound = longest_latency(topology, placement);
  if (collective == Collective::barrier) return bound;
  // The root may be in the middle, so that the farthest rank is half as far.
  if (collective == Collective::broadcast || collective == Collective::reduce) bound /= 2;
  for (const Level level : levels) {
    bound = std::max(bound, time_across(topology, placement, level, collective, static_cast<double>(bytes)));
  }
  return bound;
}

}  // namespace ddl::topology
