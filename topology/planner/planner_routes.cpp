#include "topology/planner/planner_routes.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace ddl::topology {
namespace {

constexpr double bytes_per_us = 1e3;    // in a GB/s
constexpr std::size_t few_ranks = 256;  // for a table of all pairs

}  // namespace

std::size_t PlannerRoutes::KeyHash::operator()(const Key& key) const noexcept {
  std::uint64_t hash = key.same_host ? 1 : 0;
  for (const int part : {key.from_kind, key.from_index, key.to_kind, key.to_index}) {
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

PlannerRoutes::PlannerRoutes(const Topology& topology, const Placement& placement)
    : topology_(&topology), hosts_(topology.hosts().size()) {
  find_kinds();
  std::vector<int> index_of(topology.nodes().size());
  std::vector<int> next(topology.hosts().size(), 0);
  for (std::size_t i = 0; i < topology.nodes().size(); ++i) {
    const int host = topology.nodes()[i].host;
    if (host >= 0) index_of[i] = next[static_cast<std::size_t>(host)]++;
  }
  place_of_.reserve(placement.size());
  for (const int device : placement) {
    const int node = topology.devices()[static_cast<std::size_t>(device)];
    place_of_.push_back({topology.nodes()[static_cast<std::size_t>(node)].host,
                         index_of[static_cast<std::size_t>(node)], node});
  }
  us_per_byte_.reserve(topology.links().size());
  for (const Link& link : topology.links()) us_per_byte_.push_back(1 / (link.bandwidth * bytes_per_us));
  if (placement.size() <= few_ranks) known_.resize(placement.size() * placement.size());
}

void PlannerRoutes::find_kinds() {
  const auto& nodes = topology_->nodes();
  const auto& links = topology_->links();
  std::vector<std::vector<std::int64_t>> signature(hosts_.size());
  std::vector<int> index_of(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].host < 0) continue;
    auto& of_host = signature[static_cast<std::size_t>(nodes[i].host)];
    index_of[i] = static_cast<int>(of_host.size());
    of_host.push_back(static_cast<std::int64_t>(nodes[i].kind));
  }
  for (std::size_t i = 0; i < links.size(); ++i) {
    const Link& link = links[i];
    const auto host_at = [&](int node) { return nodes[static_cast<std::size_t>(node)].host; };
    const auto add = [&](int host) {
      auto& of_host = signature[static_cast<std::size_t>(host)];
      for (const int end : {link.from, link.to}) {
        // Ends outside count by what they are: below 0.
        of_host.push_back(host_at(end) == host ? index_of[static_cast<std::size_t>(end)] : -1 - end);
      }
      of_host.push_back(static_cast<std::int64_t>(link.kind) * 2 + static_cast<std::int64_t>(link.duplex));
      of_host.push_back(std::bit_cast<std::int64_t>(link.bandwidth));
      of_host.push_back(std::bit_cast<std::int64_t>(link.latency));
      hosts_[static_cast<std::size_t>(host)].links.push_back(static_cast<int>(i));
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
}

Resource PlannerRoutes::resource_of(Channel channel) const {
  const Link& link = topology_->links()[static_cast<std::size_t>(link_of(channel))];
  return link.duplex == Duplex::half ? 2 * link_of(channel) : channel;
}

const PlannerRoutes::Template& PlannerRoutes::template_of(int from_rank, int to_rank) {
  const Place& from = place_of_[static_cast<std::size_t>(from_rank)];
  const Place& to = place_of_[static_cast<std::size_t>(to_rank)];
  const auto [entry, is_new] = templates_.try_emplace(
      {kind_of_host(from.host), from.index, kind_of_host(to.host), to.index, from.host == to.host});
  if (!is_new) return entry->second;
  Template& made = entry->second;
  const auto route = topology_->route(from.node, to.node);
  const auto is_cpu = [&](const Place& place) {
    return topology_->nodes()[static_cast<std::size_t>(place.node)].kind == NodeKind::cpu;
  };
  made.is_tcp = from.host != to.host && is_cpu(from) && is_cpu(to);
  made.in_memory = is_in_memory(*topology_, from.node, to.node, route);
  for (const Channel channel : route) {
    made.latency += topology_->links()[static_cast<std::size_t>(link_of(channel))].latency;
  }
  for (const Channel channel : std::span(route).last(made.in_memory ? 1 : route.size())) {
    const int link = link_of(channel);
    const auto direction = static_cast<std::uint8_t>(resource_of(channel) % 2);
    made.us_per_byte = std::max(made.us_per_byte, us_per_byte(2 * link));
    const auto in = [&](int host) {
      const auto& links = hosts_[static_cast<std::size_t>(host)].links;
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

PlannedRoute PlannerRoutes::resolve(int from_rank, int to_rank) {
  const Template& made = template_of(from_rank, to_rank);
  const auto& from_links = hosts_[static_cast<std::size_t>(host_of(from_rank))].links;
  const auto& to_links = hosts_[static_cast<std::size_t>(host_of(to_rank))].links;
  buffer_.clear();
  for (const Hop& hop : made.hops) {
    const int link = hop.part == Part::from_host ? from_links[static_cast<std::size_t>(hop.link)]
                     : hop.part == Part::to_host ? to_links[static_cast<std::size_t>(hop.link)]
                                                 : hop.link;
    buffer_.push_back(2 * link + hop.direction);
  }
  return {buffer_, made.latency, made.us_per_byte, made.is_tcp, made.in_memory};
}

PlannedRoute PlannerRoutes::between(int from_rank, int to_rank) {
  if (known_.empty()) return resolve(from_rank, to_rank);
  Known& known =
      known_[static_cast<std::size_t>(from_rank) * place_of_.size() + static_cast<std::size_t>(to_rank)];
  if (known.latency < 0) {
    const PlannedRoute route = resolve(from_rank, to_rank);
    known.begin = static_cast<std::uint32_t>(known_resources_.size());
    known_resources_.insert(known_resources_.end(), route.resources.begin(), route.resources.end());
    known.end = static_cast<std::uint32_t>(known_resources_.size());
    known.latency = route.latency;
    known.us_per_byte = route.us_per_byte;
    known.is_tcp = route.is_tcp;
    known.in_memory = route.in_memory;
  }
  return {std::span(known_resources_).subspan(known.begin, known.end - known.begin), known.latency,
          known.us_per_byte, known.is_tcp, known.in_memory};
}

}  // namespace ddl::topology
