#include "topology/planner/planner_routes.hpp"

#include <algorithm>
#include <bit>
#include <map>

#include "topology/graph/link_figures.hpp"

namespace ddl::topology {

PlannerRoutes::PlannerRoutes(const Topology& topology, const Placement& placement)
    : topology_(&topology), hosts_(topology.hosts().size()) {
  const std::vector<int> index_in_host = find_kinds();
  place_of_.reserve(placement.size());
  for (const int device : placement) {
    const int node = topology.node_of_device(device);
    place_of_.push_back({topology.node(node).host, index_in_host[as_index(node)], node});
  }
  us_per_byte_.reserve(topology.links().size());
  for (const Link& link : topology.links())
    us_per_byte_.push_back(1 / (link.bandwidth * figures::bytes_per_us));
}

/// Sets the hosts' kinds and links. Returns the index of each node in its host.
std::vector<int> PlannerRoutes::find_kinds() {
  const auto& nodes = topology_->nodes();
  const auto& links = topology_->links();
  std::vector<std::vector<std::int64_t>> signature(hosts_.size());
  std::vector<int> index_of(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].host < 0) continue;
    auto& of_host = signature[as_index(nodes[i].host)];
    index_of[i] = static_cast<int>(of_host.size());
    of_host.push_back(static_cast<std::int64_t>(nodes[i].kind));
  }
  for (std::size_t i = 0; i < links.size(); ++i) {
    const Link& link = links[i];
    const auto host_at = [&](int node) { return topology_->node(node).host; };
    const auto add = [&](int host) {
      auto& of_host = signature[as_index(host)];
      for (const int end : {link.from, link.to}) {
        // Nodes outside the host count by their own index, as negative numbers.
        of_host.push_back(host_at(end) == host ? index_of[as_index(end)] : -1 - end);
      }
      of_host.push_back(static_cast<std::int64_t>(link.kind) * 2 + static_cast<std::int64_t>(link.duplex));
      of_host.push_back(std::bit_cast<std::int64_t>(link.bandwidth));
      of_host.push_back(std::bit_cast<std::int64_t>(link.latency));
      hosts_[as_index(host)].links.push_back(static_cast<int>(i));
    };
    const int from = host_at(link.from);
    const int to = host_at(link.to);
    if (from >= 0) add(from);
    if (to >= 0 && to != from) add(to);
  }
  std::map<std::vector<std::int64_t>, int> kinds;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    const auto [entry, is_new] =
        kinds.try_emplace(std::move(signature[host]), static_cast<int>(kinds.size()));
    hosts_[host].kind = entry->second;
  }
  return index_of;
}

Resource PlannerRoutes::resource_of(Channel channel) const {
  return topology_->link(link_of(channel)).duplex == Duplex::half ? 2 * link_of(channel) : channel;
}

const PlannerRoutes::Template& PlannerRoutes::template_of(int from_rank, int to_rank) {
  const Place& from = place_of_[as_index(from_rank)];
  const Place& to = place_of_[as_index(to_rank)];
  const auto [entry, is_new] = templates_.try_emplace(
      {kind_of_host(from.host), from.index, kind_of_host(to.host), to.index, from.host == to.host ? 1 : 0});
  if (!is_new) return entry->second;
  Template& made = entry->second;
  const auto route = topology_->route(from.node, to.node);
  const auto is_cpu = [&](const Place& place) { return topology_->node(place.node).kind == NodeKind::cpu; };
  RouteFigures& figures = made.figures;
  figures.is_tcp = from.host != to.host && is_cpu(from) && is_cpu(to);
  figures.in_memory = is_in_memory(*topology_, from.node, to.node, route);
  for (const Channel channel : route) figures.latency += topology_->link(link_of(channel)).latency;
  for (const Channel channel : std::span(route).last(figures.in_memory ? 1 : route.size())) {
    const int link = link_of(channel);
    const auto direction = static_cast<std::uint8_t>(resource_of(channel) % 2);
    figures.us_per_byte = std::max(figures.us_per_byte, us_per_byte(2 * link));
    const auto in = [&](int host) {
      const auto& links = hosts_[as_index(host)].links;
      const auto found = std::ranges::lower_bound(links, link);
      return found != links.end() && *found == link ? static_cast<int>(found - links.begin()) : -1;
    };
    if (const int at = in(from.host); at >= 0) {
      made.hops.push_back({Part::from_host, direction, at});
    } else if (const int there = in(to.host); there >= 0) {
      made.hops.push_back({Part::to_host, direction, there});
    } else {
      made.hops.push_back({Part::between, direction, link});
    }
  }
  return made;
}

PlannedRoute PlannerRoutes::between(int from_rank, int to_rank) {
  const Template& made = template_of(from_rank, to_rank);
  const auto& from_links = hosts_[as_index(host_of(from_rank))].links;
  const auto& to_links = hosts_[as_index(host_of(to_rank))].links;
  buffer_.clear();
  for (const Hop& hop : made.hops) {
    const int link = hop.part == Part::from_host ? from_links[as_index(hop.link)]
                     : hop.part == Part::to_host ? to_links[as_index(hop.link)]
                                                 : hop.link;
    buffer_.push_back(2 * link + hop.direction);
  }
  return {made.figures, buffer_};
}

std::vector<bool> PlannerRoutes::used_links() {
  struct Group {
    std::vector<int> hosts;  // alike, with ranks in the same places
    std::vector<bool> used;  // by index into a host's links
  };
  std::vector<std::vector<int>> ranks_of(hosts_.size());
  for (std::size_t rank = 0; rank < place_of_.size(); ++rank)
    ranks_of[as_index(place_of_[rank].host)].push_back(static_cast<int>(rank));
  std::map<std::vector<int>, Group> groups;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    if (ranks_of[host].empty()) continue;
    std::vector<int> key = {hosts_[host].kind};
    for (const int rank : ranks_of[host]) key.push_back(index_in_host(rank));
    Group& group = groups[std::move(key)];
    group.hosts.push_back(static_cast<int>(host));
    group.used.resize(hosts_[host].links.size());
  }

  std::vector<bool> result(topology_->links().size());
  const auto use = [&](Group& from_group, int from_host, Group& to_group, int to_host) {
    for (const int from : ranks_of[as_index(from_host)]) {
      for (const int to : ranks_of[as_index(to_host)]) {
        if (from == to) continue;
        for (const Hop& hop : template_of(from, to).hops) {
          (hop.part == Part::from_host ? from_group.used
           : hop.part == Part::to_host ? to_group.used
                                       : result)[as_index(hop.link)] = true;
        }
      }
    }
  };
  for (auto& [key, group] : groups) {
    use(group, group.hosts.front(), group, group.hosts.front());
    for (auto& [other_key, other] : groups) {
      if (&other != &group || group.hosts.size() > 1)
        use(group, group.hosts.front(), other, other.hosts.back());
    }
  }
  for (const auto& [key, group] : groups) {
    for (const int host : group.hosts) {
      for (std::size_t i = 0; i < group.used.size(); ++i) {
        if (group.used[i]) result[as_index(hosts_[as_index(host)].links[i])] = true;
      }
    }
  }
  return result;
}

}  // namespace ddl::topology
