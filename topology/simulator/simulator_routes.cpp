#include "topology/simulator/simulator_routes.hpp"

#include <algorithm>
#include <utility>

namespace ddl::topology {
RouteTable::RouteTable(const Topology& topology, Placement placement)
    : topology_(&topology), placement_(std::move(placement)) {
  require_valid(topology, placement_);
}

int RouteTable::node_of(int rank) const { return topology_->node_of_device(placement_[as_index(rank)]); }

NodeKind RouteTable::device_kind(int rank) const { return topology_->node(node_of(rank)).kind; }

std::optional<Channel> RouteTable::core_channel(int rank) const {
  const int link = core_link(*topology_, node_of(rank));
  if (link < 0) return {};
  return 2 * link;
}

const RouteTable::Route& RouteTable::between(int from_rank, int to_rank) {
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

}  // namespace ddl::topology
