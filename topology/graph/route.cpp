// Topology::route, and whether there is one between any two devices.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <queue>
#include <utility>

#include "ddl/topology/topology.hpp"
#include "topology/graph/reachability.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

constexpr std::size_t most_work = 100'000'000;

struct Position {
  Leg leg;
  int node;
};

/// Floods the graph along the steps that routes may take.
class Flood {
 public:
  explicit Flood(const Topology& topology) : topology_(topology) {
    for (auto& marks : marks_) marks.resize(topology.nodes().size());
  }

  /// Marks all nodes that routes from `start` reach; unless `may_leave`, only those on the same leg.
  void run(int start, Leg leg, bool may_leave) {
    for (auto& marks : marks_) marks.assign(marks.size(), false);
    queue_.clear();
    push({leg, start});
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const Position at = queue_[i];
      const Node& here = topology_.node(at.node);
      for (const int link : topology_.links_at(at.node)) {
        const int other = topology_.other_end(link, at.node);
        const Node& next = topology_.node(other);
        const auto leg_then = next_leg(here, at.leg, i == 0, next, is_device(next.kind));
        if (leg_then && (may_leave || *leg_then == at.leg)) push({*leg_then, other});
      }
    }
  }

  [[nodiscard]] bool reached(int node) const {
    return std::ranges::any_of(marks_, [&](const auto& marks) { return marks[as_index(node)]; });
  }

  [[nodiscard]] std::optional<int> first_missed() const {
    const auto& devices = topology_.devices();
    const auto missed = std::ranges::find_if_not(devices, [&](int device) { return reached(device); });
    return missed == devices.end() ? std::nullopt : std::optional(*missed);
  }

 private:
  void push(Position position) {
    auto mark = marks_[as_index(position.leg)][as_index(position.node)];
    if (mark) return;
    mark = true;
    queue_.push_back(position);
  }

  const Topology& topology_;
  std::array<std::vector<bool>, 3> marks_;
  std::vector<Position> queue_;
};

using Picoseconds = std::int64_t;
constexpr Picoseconds unreached = std::numeric_limits<Picoseconds>::max();

/// Cannot overflow in a sum: at most 1e6 links of at most 1e12 ps each.
Picoseconds picoseconds(double microseconds) { return std::llround(microseconds * 1e6); }

/// The part of a range, sorted by `key_of`, whose key is `key`.
template <typename Range, typename Key>
auto with_key(const Range& sorted, int key, Key key_of) {
  return std::span(std::ranges::lower_bound(sorted, key, {}, key_of),
                   std::ranges::upper_bound(sorted, key, {}, key_of));
}

/// A step that a route may take between two states. A state is a node on a leg.
struct Edge {
  int from;
  int to;
  Channel channel;
};

/// The search for one route. States are numbered leg by leg.
class Search {
 public:
  Search(const Topology& topology, std::span<const int> host_sizes, std::span<const int> index_in_host,
         int from, int to, bool inside)
      : topology_(topology), index_in_host_(index_in_host), to_(to), inside_(inside) {
    const int from_host = node(from).host;
    to_host_ = node(to).host;
    const auto size_of = [&](int host) { return host < 0 ? 0 : host_sizes[as_index(host)]; };
    first_state_ = {0, size_of(from_host), size_of(from_host) + (inside ? 0 : host_sizes.back())};
    const int states = first_state_[2] + (inside ? 0 : size_of(to_host_));
    node_of_.assign(as_index(states), -1);
    distance_.assign(as_index(states), unreached);
    start_ = state(from_host < 0 ? Leg::between : Leg::leaving, from);
    end_ = state(inside ? Leg::leaving : to_host_ < 0 ? Leg::between : Leg::entering, to);
  }

  /// The best route, or nothing if there is none; can be called once. The ends' device numbers break ties.
  std::vector<Channel> best(int from_number, int to_number) {
    find_distances();
    if (distance(end_) == unreached) return {};
    keep_shortest_edges();
    keep_widest_edges();
    reaches_end(0);  // counts the links to the end over the remaining edges
    return walk(from_number, to_number);
  }

 private:
  [[nodiscard]] const Node& node(int index) const { return topology_.node(index); }
  [[nodiscard]] const Link& link(Channel channel) const { return topology_.link(link_of(channel)); }
  [[nodiscard]] Picoseconds distance(int at) const { return distance_[as_index(at)]; }

  int state(Leg leg, int index) {
    const int result = first_state_[as_index(leg)] + index_in_host_[as_index(index)];
    node_of_[as_index(result)] = index;
    return result;
  }
  [[nodiscard]] Leg leg_of(int at) const {
    return at < first_state_[1] ? Leg::leaving : at < first_state_[2] ? Leg::between : Leg::entering;
  }

  /// Of a network node's links, only those to network nodes and to the destination's host matter.
  template <typename Visit>
  void for_links(int at, Visit visit) const {
    const auto links = topology_.links_at(at);
    if (node(at).host >= 0) {
      std::ranges::for_each(links, visit);
      return;
    }
    const auto host = [&](int index) { return node(topology_.other_end(index, at)).host; };
    for (const int index : with_key(links, -1, host)) visit(index);
    if (to_host_ < 0) return;
    for (const int index : with_key(links, to_host_, host)) visit(index);
  }

  void visit_neighbours(int at) {
    const int index = node_of_[as_index(at)];
    const Node& here = node(index);
    for_links(index, [&](int link_index) {
      const int other = topology_.other_end(link_index, index);
      const Node& next = node(other);
      const auto leg = next_leg(here, leg_of(at), at == start_, next, other == to_);
      if (!leg || (inside_ && *leg != Leg::leaving)) return;
      if (*leg == Leg::entering && next.host != to_host_) return;
      const int to = state(*leg, other);
      if (is_device(next.kind) && to != end_) return;
      const Link& taken = topology_.link(link_index);
      edges_.push_back({at, to, 2 * link_index + (taken.from == index ? 0 : 1)});
      const Picoseconds through = distance(at) + picoseconds(taken.latency);
      if (through < distance(to)) {
        distance_[as_index(to)] = through;
        queue_.emplace(through, to);
      }
    });
  }

  void find_distances() {
    distance_[as_index(start_)] = 0;
    queue_.emplace(0, start_);
    std::vector<bool> done(distance_.size());
    while (!queue_.empty()) {
      const auto [so_far, at] = queue_.top();
      queue_.pop();
      if (so_far > distance(end_)) break;
      if (done[as_index(at)]) continue;
      done[as_index(at)] = true;
      if (at != end_) visit_neighbours(at);
    }
  }

  void keep_shortest_edges() {
    std::erase_if(edges_, [&](const Edge& edge) {
      return distance(edge.from) + picoseconds(link(edge.channel).latency) != distance(edge.to) ||
             distance(edge.to) > distance(end_);
    });
    std::ranges::sort(edges_, {}, &Edge::to);
  }

  /// Sets `links_to_end_` of states that reach the end over edges this wide. Returns whether the start does.
  bool reaches_end(double width) {
    links_to_end_.assign(distance_.size(), -1);
    links_to_end_[as_index(end_)] = 0;
    std::vector<int> found{end_};
    for (std::size_t i = 0; i < found.size(); ++i) {
      const int next_links = links_to_end_[as_index(found[i])] + 1;
      for (const Edge& edge : with_key(edges_, found[i], &Edge::to)) {
        auto& links = links_to_end_[as_index(edge.from)];
        if (links >= 0 || link(edge.channel).bandwidth < width) continue;
        links = next_links;
        found.push_back(edge.from);
      }
    }
    return links_to_end_[as_index(start_)] >= 0;
  }

  void keep_widest_edges() {
    std::vector<double> widths;
    for (const Edge& edge : edges_) widths.push_back(link(edge.channel).bandwidth);
    std::ranges::sort(widths);
    widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
    const auto too_wide =
        std::ranges::partition_point(widths, [&](double width) { return reaches_end(width); });
    const double widest = *std::prev(too_wide);
    std::erase_if(edges_, [&](const Edge& edge) { return link(edge.channel).bandwidth < widest; });
  }

  std::vector<Channel> walk(int from_number, int to_number) {
    std::ranges::sort(edges_, {}, [](const Edge& edge) { return std::pair(edge.from, edge.channel); });
    std::vector<Channel> result;
    std::vector<Edge> best;
    for (int at = start_; at != end_;) {
      const auto links_left = [&](int where) { return links_to_end_[as_index(where)]; };
      best.clear();
      std::ranges::copy_if(with_key(edges_, at, &Edge::from), std::back_inserter(best),
                           [&](const Edge& edge) { return links_left(edge.to) == links_left(at) - 1; });
      const bool leaves = leg_of(at) == Leg::leaving;
      const bool enters = leg_of(best[0].to) == Leg::entering;
      const int number = (enters ? 0 : from_number) + (leaves ? 0 : to_number);
      const Edge& next = best[as_index(number) % best.size()];
      result.push_back(next.channel);
      at = next.to;
    }
    return result;
  }

  const Topology& topology_;
  std::span<const int> index_in_host_;
  int to_;
  bool inside_;
  int to_host_ = -1;
  int start_ = 0;
  int end_ = 0;
  std::array<int, 3> first_state_{};  // by leg
  std::vector<int> node_of_;          // by state; -1 until the state is seen
  std::vector<Picoseconds> distance_;
  std::priority_queue<std::pair<Picoseconds, int>, std::vector<std::pair<Picoseconds, int>>, std::greater<>>
      queue_;
  std::vector<Edge> edges_;
  std::vector<int> links_to_end_;
};

}  // namespace

std::optional<std::string> find_unreachable(const Topology& topology) {
  const auto& devices = topology.devices();
  Flood flood(topology);

  const std::size_t each = topology.nodes().size() + 2 * topology.links().size();
  const bool is_one_host = std::ranges::all_of(
      devices, [&](int device) { return topology.node(device).host == topology.node(devices.front()).host; });
  // Routes exist in both directions, so devices that all reach one hub reach one another: a network, or
  // inside the only host packages and fabrics that are connected.
  std::vector<bool> tried(topology.nodes().size());
  std::size_t work = 0;
  for (int node = 0; node < static_cast<int>(tried.size()) && work < most_work; ++node) {
    const NodeKind kind = topology.node(node).kind;
    const bool is_inside = is_one_host && (kind == NodeKind::package || kind == NodeKind::fabric);
    if (tried[as_index(node)] || (kind != NodeKind::network && !is_inside)) continue;
    flood.run(node, is_inside ? Leg::leaving : Leg::between, !is_inside);
    if (!flood.first_missed()) return {};
    for (int other = node; other < static_cast<int>(tried.size()); ++other) {
      if (topology.node(other).kind == kind && flood.reached(other)) tried[as_index(other)] = true;
    }
    work += each;
  }

  // Even above the limit, the first device is tried: most often it is the one that cannot reach others.
  for (const int device : devices) {
    flood.run(device, Leg::leaving, true);
    if (const auto missed = flood.first_missed()) {
      return fmt::format("no way from '{}' to '{}'", topology.node(device).name, topology.node(*missed).name);
    }
    if (devices.size() * each > most_work) {
      return fmt::format(
          "{} devices without a network that all of them reach, too many to look from each at {} nodes and "
          "links",
          devices.size(), each);
    }
  }
  return {};
}

std::vector<Channel> Topology::route(int from_node, int to_node) const {
  for (const int node : {from_node, to_node}) {
    if (node < 0 || as_index(node) >= nodes_.size()) {
      refuse("route: found node {}, expected 0 to {}", node, nodes_.size() - 1);
    }
  }
  if (from_node == to_node) return {};
  const Node& from = nodes_[as_index(from_node)];
  const Node& to = nodes_[as_index(to_node)];
  const int from_number = device_number_[as_index(from_node)];
  const int to_number = device_number_[as_index(to_node)];
  if (from.host >= 0 && from.host == to.host) {
    auto inside =
        Search(*this, host_sizes_, index_in_host_, from_node, to_node, true).best(from_number, to_number);
    if (!inside.empty()) return inside;
  }
  auto result =
      Search(*this, host_sizes_, index_in_host_, from_node, to_node, false).best(from_number, to_number);
  if (result.empty()) {
    refuse(
        "route: found no way from '{}' to '{}' that passes only packages, fabrics, network "
        "nodes and NICs towards the network, expected a link that joins them",
        from.name, to.name);
  }
  return result;
}

}  // namespace ddl::topology
