#include "topology/graph/reachability.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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

}  // namespace ddl::topology
