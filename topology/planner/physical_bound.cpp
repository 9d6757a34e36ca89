#include "ddl/topology/physical_bound.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "ddl/topology/plan.hpp"
#include "topology/graph/link_figures.hpp"

namespace ddl::topology {
namespace {

/// Removed level by level: links between switches, then also those of each of these kinds, then all links.
constexpr LinkKind removed[] = {LinkKind::network, LinkKind::socket, LinkKind::pcie};
constexpr std::size_t levels = std::size(removed) + 2;

bool is_cut(const Topology& topology, const Link& link, std::size_t level) {
  const auto is_switch = [&](int node) { return topology.node(node).kind == NodeKind::network; };
  if (level == 0) return is_switch(link.from) && is_switch(link.to);
  if (level + 1 == levels) return true;
  const auto kinds = std::span(removed).first(level);
  return std::ranges::find(kinds, link.kind) != kinds.end();
}

/// Disjoint sets of nodes.
class Components {
 public:
  explicit Components(std::size_t nodes) : parent_(nodes) { std::iota(parent_.begin(), parent_.end(), 0); }

  int root(int node) {
    while (at(node) != node) node = at(node) = at(at(node));
    return node;
  }
  void join(int a, int b) { at(root(a)) = root(b); }

 private:
  int& at(int node) { return parent_[as_index(node)]; }
  std::vector<int> parent_;
};

/// What the links that leave a group can carry, in bytes a us.
struct Capacity {
  double in = 0;
  double out = 0;
  double both_ways = 0;  ///< In and out together; half-duplex links count once.
};

/// us that the links removed at `level` need for the bytes that must cross them.
double time_across(const Topology& topology, const Placement& placement, std::size_t level,
                   Collective collective, double bytes) {
  Components components(topology.nodes().size());
  for (const Link& link : topology.links()) {
    if (!is_cut(topology, link, level)) components.join(link.from, link.to);
  }
  std::vector<int> group_of(topology.nodes().size(), -1);  // by root of a component
  int groups = 0;
  std::vector<double> ranks_of;
  for (const int device : placement) {
    const int node = topology.node_of_device(device);
    int& group = group_of[as_index(components.root(node))];
    if (group < 0) {
      group = groups++;
      ranks_of.push_back(0);
    }
    ++ranks_of[as_index(group)];
  }
  if (groups < 2) return 0;

  constexpr double unlimited = std::numeric_limits<double>::infinity();
  std::vector<Capacity> capacity(as_index(groups));
  double all_one_way = 0;
  double all_both_ways = 0;
  for (const Link& link : topology.links()) {
    const int from = components.root(link.from);
    const int to = components.root(link.to);
    if (from == to) continue;
    const bool is_half = link.duplex == Duplex::half;
    // From memory to memory only the receiver's core moves bytes, at best twice as fast as it copies.
    const bool is_core = is_half && link.kind == LinkKind::memory;
    const double one = link.bandwidth * figures::bytes_per_us * (is_core ? 2 : 1);
    int ends = 0;
    for (const int root : {from, to}) {
      const int group = group_of[as_index(root)];
      if (group < 0) continue;
      ++ends;
      Capacity& mine = capacity[as_index(group)];
      mine.in += one;
      mine.out += is_core ? unlimited : one;
      mine.both_ways += is_core ? unlimited : is_half ? one : 2 * one;
      all_both_ways += is_half && !is_core ? one : 2 * one;
    }
    // A byte over a half-duplex link between two groups leaves only one of them: the link counts once.
    if (ends > 0) all_one_way += is_half && !is_core ? one : ends * one;
  }

  const double others = groups - 1;
  const double n = static_cast<double>(placement.size());
  if (collective == Collective::all_reduce) {
    const double total = 2 * bytes * others;
    double result = std::max(total / all_one_way, 2 * total / all_both_ways);
    for (const Capacity& group : capacity) {
      result = std::max({result, bytes / group.in, bytes / group.out, 2 * bytes / group.both_ways});
    }
    return result;
  }
  if (has_pieces(collective)) {
    const double total = bytes * others;
    double result = std::max(total / all_one_way, 2 * total / all_both_ways);
    for (std::size_t i = 0; i < capacity.size(); ++i) {
      const double own = bytes * ranks_of[i] / n;
      const double in = collective == Collective::all_gather ? bytes - own : own;
      result = std::max(
          {result, in / capacity[i].in, (bytes - in) / capacity[i].out, bytes / capacity[i].both_ways});
    }
    return result;
  }
  // Data enters each group but the root's and leaves the root's, or the other way round. The bound holds for
  // any root, so the narrowest group may be the root's own, and so may the widest.
  const bool gathers = collective == Collective::reduce;
  const auto ways = [&](double Capacity::*way) {
    std::vector<double> result;
    for (const Capacity& group : capacity) result.push_back(group.*way);
    std::ranges::sort(result);
    return result;
  };
  const double second = ways(gathers ? &Capacity::out : &Capacity::in)[1];
  const double widest = ways(gathers ? &Capacity::in : &Capacity::out).back();
  return std::max({bytes * others / all_one_way, bytes / second, bytes / widest});
}

/// The least latency from one node to every other, whatever lies between.
std::vector<double> latencies_from(const Topology& topology, int start) {
  std::vector<double> latency(topology.nodes().size(), std::numeric_limits<double>::infinity());
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  latency[as_index(start)] = 0;
  queue.emplace(0, start);
  while (!queue.empty()) {
    const auto [so_far, node] = queue.top();
    queue.pop();
    if (so_far > latency[as_index(node)]) continue;
    for (const int index : topology.links_at(node)) {
      const int other = topology.other_end(index, node);
      const double through = so_far + topology.link(index).latency;
      if (through >= latency[as_index(other)]) continue;
      latency[as_index(other)] = through;
      queue.emplace(through, other);
    }
  }
  return latency;
}

/// A long latency between two ranks: the farthest from the first, and the farthest from that one.
double longest_latency(const Topology& topology, const Placement& placement) {
  int start = topology.node_of_device(placement.front());
  double longest = 0;
  for (int sweep = 0; sweep < 2; ++sweep) {
    const auto latency = latencies_from(topology, start);
    for (const int device : placement) {
      const int node = topology.node_of_device(device);
      const double found = latency[as_index(node)];
      if (found <= longest) continue;
      longest = found;
      start = node;
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
  // The root may be in the middle, with the farthest rank half as far.
  if (has_root(collective)) bound /= 2;
  for (std::size_t level = 0; level < levels; ++level) {
    bound = std::max(bound, time_across(topology, placement, level, collective, static_cast<double>(bytes)));
  }
  return bound;
}

}  // namespace ddl::topology
