#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// The routes between placed ranks, each looked up once.
class RouteTable {
 public:
  /// Throws `invalid_argument` as `require_valid` does.
  RouteTable(const Topology& topology, Placement placement)
      : topology_(&topology), placement_(std::move(placement)) {
    require_valid(topology, placement_);
  }

  struct Route {
    std::vector<Channel> channels;
    double latency = 0;      // us
    double network = 0;      // GB/s of the narrowest network link if both ends are `cpu`, else 0
    bool in_memory = false;  // see `is_in_memory`; the only channel is then the route's last one
  };
  /// Valid as long as this.
  const Route& between(int from_rank, int to_rank) {
    const auto key = static_cast<std::uint64_t>(from_rank) << 32U | static_cast<std::uint32_t>(to_rank);
    const auto [entry, is_new] = routes_.try_emplace(key);
    Route& route = entry->second;
    if (!is_new) return route;
    route.channels = topology_->route(node_of(from_rank), node_of(to_rank));
    route.in_memory = is_in_memory(*topology_, node_of(from_rank), node_of(to_rank), route.channels);
    const bool is_of_cpus = device_kind(from_rank) == NodeKind::cpu && device_kind(to_rank) == NodeKind::cpu;
    for (const Channel channel : route.channels) {
      const Link& link = topology_->link(link_of(channel));
      route.latency += link.latency;
      if (!is_of_cpus || link.kind != LinkKind::network) continue;
      route.network = route.network == 0 ? link.bandwidth : std::min(route.network, link.bandwidth);
    }
    if (route.in_memory) route.channels.erase(route.channels.begin(), route.channels.end() - 1);
    return route;
  }

  [[nodiscard]] const Topology& topology() const noexcept { return *topology_; }
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(placement_.size()); }
  [[nodiscard]] NodeKind device_kind(int rank) const { return topology_->node(node_of(rank)).kind; }
  /// The channel that a rank's reductions share with its transfers; see `core_link`.
  [[nodiscard]] std::optional<Channel> core_channel(int rank) const {
    const int link = core_link(*topology_, node_of(rank));
    return link < 0 ? std::nullopt : std::optional(2 * link);
  }

 private:
  [[nodiscard]] int node_of(int rank) const { return topology_->node_of_device(placement_[as_index(rank)]); }

  const Topology* topology_;
  Placement placement_;
  std::unordered_map<std::uint64_t, Route> routes_;
};

}  // namespace ddl::topology
