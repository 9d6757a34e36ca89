#include "topology/graph/reachability.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

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

  /// Marks all nodes that routes from `starts` reach; unless `may_leave`, only those on the same leg.
  void run(std::span<const int> starts, Leg leg, bool may_leave) {
    for (auto& marks : marks_) marks.assign(marks.size(), false);
    queue_.clear();
    for (const int node : starts) push({leg, node});
    const std::size_t first_steps = queue_.size();
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const Position at = queue_[i];
      const Node& here = topology_.node(at.node);
      for (const int link : topology_.links_at(at.node)) {
        const int other = topology_.other_end(link, at.node);
        const Node& next = topology_.node(other);
        const auto leg_then = next_leg(here, at.leg, i < first_steps, next, is_device(next.kind));
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

/// Of the sets of nodes that satisfy `is_kind` and are connected inside one host or inside the network, the
/// one with the most links to other nodes.
template <typename IsKind>
std::vector<int> largest_hub(const Topology& topology, IsKind is_kind) {
  const auto nodes = static_cast<int>(topology.nodes().size());
  std::vector<bool> seen(topology.nodes().size());
  std::vector<int> best;
  std::size_t most_links = 0;
  for (int start = 0; start < nodes; ++start) {
    if (seen[as_index(start)] || !is_kind(topology.node(start).kind)) continue;
    std::vector<int> hub{start};
    std::size_t links = 0;
    seen[as_index(start)] = true;
    for (std::size_t i = 0; i < hub.size(); ++i) {
      for (const int link : topology.links_at(hub[i])) {
        const int other = topology.other_end(link, hub[i]);
        const Node& next = topology.node(other);
        if (!is_kind(next.kind) || next.host != topology.node(start).host) {
          ++links;
        } else if (!seen[as_index(other)]) {
          seen[as_index(other)] = true;
          hub.push_back(other);
        }
      }
    }
    if (best.empty() || links > most_links) {
      best = std::move(hub);
      most_links = links;
    }
  }
  return best;
}

}  // namespace

std::optional<std::string> find_unreachable(const Topology& topology) {
  const auto& devices = topology.devices();
  Flood flood(topology);

  // Routes exist in both directions, so devices that all reach one hub reach one another.
  const auto network = largest_hub(topology, [](NodeKind kind) { return kind == NodeKind::network; });
  flood.run(network, Leg::between, true);
  if (!flood.first_missed()) return {};
  const bool is_one_host = std::ranges::all_of(
      devices, [&](int device) { return topology.node(device).host == topology.node(devices.front()).host; });
  if (is_one_host) {
    const auto inside = largest_hub(
        topology, [](NodeKind kind) { return kind == NodeKind::package || kind == NodeKind::fabric; });
    flood.run(inside, Leg::leaving, false);
    if (!flood.first_missed()) return {};
  }

  const std::size_t each = topology.nodes().size() + 2 * topology.links().size();
  // Even above the limit, the first device is tried: most often it is the one that cannot reach others.
  for (const int device : devices) {
    flood.run(std::span(&device, 1), Leg::leaving, true);
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
