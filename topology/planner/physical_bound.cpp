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
#include "topology/planner/planner_routes.hpp"

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

PhysicalBound::PhysicalBound(const Topology& topology, const Placement& placement)
    : ranks_(static_cast<double>(placement.size())) {
  require_valid(topology, placement);
  if (placement.size() == 1) return;
  longest_latency_ = longest_latency(topology, placement);
  const std::vector<bool> used = PlannerRoutes(topology, placement).used_links();
  for (std::size_t level = 0; level < levels; ++level) {
    if (Cut cut = cut_at(level, topology, placement, used); cut.groups.size() > 1) {
      cuts_.push_back(std::move(cut));
    }
  }
}

PhysicalBound::Cut PhysicalBound::cut_at(std::size_t level, const Topology& topology,
                                         const Placement& placement, const std::vector<bool>& used) {
  const auto& links = topology.links();
  Components components(topology.nodes().size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (!is_cut(topology, links[i], level)) components.join(links[i].from, links[i].to);
  }
  Cut cut;
  std::vector<int> group_of(topology.nodes().size(), -1);  // by root of a component
  for (const int device : placement) {
    int& group = group_of[as_index(components.root(topology.node_of_device(device)))];
    if (group < 0) {
      group = static_cast<int>(cut.groups.size());
      cut.groups.emplace_back();
    }
    ++cut.groups[as_index(group)].ranks;
  }

  constexpr double unlimited = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < links.size(); ++i) {
    const Link& link = links[i];
    const int from = components.root(link.from);
    const int to = components.root(link.to);
    if (!used[i] || from == to) continue;
    const bool is_half = link.duplex == Duplex::half;
    // From memory to memory only the receiver's core moves bytes, at best twice as fast as it copies.
    const bool is_core = is_half && link.kind == LinkKind::memory;
    const double one = link.bandwidth * figures::bytes_per_us * (is_core ? 2 : 1);
    int ends = 0;
    for (const int root : {from, to}) {
      const int group = group_of[as_index(root)];
      if (group < 0) continue;
      ++ends;
      Group& mine = cut.groups[as_index(group)];
      mine.in += one;
      mine.out += is_core ? unlimited : one;
      mine.both_ways += is_core ? unlimited : is_half ? one : 2 * one;
      cut.all_both_ways += is_half && !is_core ? one : 2 * one;
    }
    // A byte over a half-duplex link between two groups leaves only one of them: the link counts once.
    if (ends > 0) cut.all_one_way += is_half && !is_core ? one : ends * one;
  }
  return cut;
}

double PhysicalBound::time_across(const Cut& cut, Collective collective, double bytes) const {
  const double others = static_cast<double>(cut.groups.size() - 1);
  if (collective == Collective::all_reduce) {
    const double total = 2 * bytes * others;
    double result = std::max(total / cut.all_one_way, 2 * total / cut.all_both_ways);
    for (const Group& group : cut.groups) {
      result = std::max({result, bytes / group.in, bytes / group.out, 2 * bytes / group.both_ways});
    }
    return result;
  }
  if (has_pieces(collective)) {
    const double total = bytes * others;
    double result = std::max(total / cut.all_one_way, 2 * total / cut.all_both_ways);
    for (const Group& group : cut.groups) {
      const double own = bytes * group.ranks / ranks_;
      const double in = collective == Collective::all_gather ? bytes - own : own;
      result = std::max({result, in / group.in, (bytes - in) / group.out, bytes / group.both_ways});
    }
    return result;
  }
  // Data enters each group but the root's and leaves the root's, or the other way round. The bound holds for
  // any root: the best group for it counts.
  const bool gathers = collective == Collective::reduce;
  const auto of_root = gathers ? &Group::in : &Group::out;
  const auto of_others = gathers ? &Group::out : &Group::in;
  const auto narrowest = std::ranges::min_element(cut.groups, {}, of_others);
  double second = std::numeric_limits<double>::infinity();
  for (const Group& group : cut.groups) {
    if (&group != &*narrowest) second = std::min(second, group.*of_others);
  }
  double widest = 0;
  for (const Group& group : cut.groups) {
    const double least = &group == &*narrowest ? second : (*narrowest).*of_others;
    widest = std::max(widest, std::min(group.*of_root, least));
  }
  return std::max(bytes * others / cut.all_one_way, bytes / widest);
}

double PhysicalBound::us(Collective collective, std::uint64_t bytes) const {
  if (ranks_ == 1 || (bytes == 0 && collective != Collective::barrier)) return 0;
  if (collective == Collective::barrier) return longest_latency_;
  // The root may be in the middle, with the farthest rank half as far.
  double bound = has_root(collective) ? longest_latency_ / 2 : longest_latency_;
  for (const Cut& cut : cuts_) {
    bound = std::max(bound, time_across(cut, collective, static_cast<double>(bytes)));
  }
  return bound;
}

}  // namespace ddl::topology
