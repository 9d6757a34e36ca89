#include <algorithm>
#include <unordered_map>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/rank_map.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {

RankMap::RankMap(const std::vector<std::string>& host_names) {
  if (host_names.empty()) refuse("a rank map needs at least one rank, got no host names");
  std::unordered_map<std::string, int> index_of;
  host_of_.reserve(host_names.size());
  local_rank_.reserve(host_names.size());
  for (std::size_t rank = 0; rank < host_names.size(); ++rank) {
    const auto [entry, is_new] = index_of.try_emplace(host_names[rank], hosts());
    if (is_new) {
      names_.push_back(host_names[rank]);
      ranks_of_.emplace_back();
    }
    auto& members = ranks_of_[as_index(entry->second)];
    host_of_.push_back(entry->second);
    local_rank_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(rank));
  }
}

std::string RankMap::short_name(int host) const {
  const auto first_part = [](const std::string& name) { return name.substr(0, name.find('/')); };
  const std::string result = first_part(host_name(host));
  const bool is_unique = std::ranges::count(names_, result, first_part) == 1 && !result.empty();
  return is_unique ? result : host_name(host);
}

namespace {

void require_count(const Topology& topology, int ranks) {
  const std::size_t devices = topology.devices().size();
  if (ranks < 1) refuse("placement: found {} ranks, expected at least 1", ranks);
  if (as_index(ranks) > devices) {
    refuse(
        "placement: found {} ranks, expected at most {}, the devices of the topology: one rank "
        "a device",
        ranks, devices);
  }
}

/// Device indices by host; a host's devices need not be adjacent in a topology.
std::vector<std::vector<int>> devices_by_host(const Topology& topology) {
  std::vector<std::vector<int>> result(topology.hosts().size());
  for (int device = 0; device < static_cast<int>(topology.devices().size()); ++device) {
    const int host = topology.node(topology.node_of_device(device)).host;
    result[as_index(host)].push_back(device);
  }
  return result;
}

}  // namespace

Placement place_by_host(const Topology& topology, int ranks) {
  require_count(topology, ranks);
  Placement placement;
  for (const std::vector<int>& devices : devices_by_host(topology)) {
    placement.insert(placement.end(), devices.begin(), devices.end());
  }
  placement.resize(as_index(ranks));
  return placement;
}

Placement place_round_robin(const Topology& topology, int ranks) {
  require_count(topology, ranks);
  const std::vector<std::vector<int>> devices = devices_by_host(topology);
  std::size_t hosts = 0;
  for (std::size_t held = 0; held < as_index(ranks); ++hosts) held += devices[hosts].size();

  Placement placement;
  for (std::size_t turn = 0; placement.size() < as_index(ranks); ++turn) {
    for (std::size_t host = 0; host < hosts && placement.size() < as_index(ranks); ++host) {
      if (turn < devices[host].size()) placement.push_back(devices[host][turn]);
    }
  }
  return placement;
}

int core_link(const Topology& topology, int device_node) {
  if (topology.node(device_node).kind != NodeKind::cpu) return -1;
  for (const int index : topology.links_at(device_node)) {
    const Link& link = topology.link(index);
    if (link.kind == LinkKind::memory && link.duplex == Duplex::half) return index;
  }
  return -1;
}

bool is_in_memory(const Topology& topology, int from_node, int to_node, std::span<const Channel> route) {
  return route.size() == 2 && link_of(route[0]) == core_link(topology, from_node) &&
         link_of(route[1]) == core_link(topology, to_node);
}

void require_valid(const Topology& topology, const Placement& placement) {
  const std::size_t devices = topology.devices().size();
  if (placement.empty()) refuse("placement: found no rank, expected at least one");
  std::vector<int> rank_on(devices, -1);
  for (std::size_t rank = 0; rank < placement.size(); ++rank) {
    const int device = placement[rank];
    if (device < 0 || as_index(device) >= devices) {
      refuse("placement: rank {}: found device {}, expected 0 to {}", rank, device, devices - 1);
    }
    int& holder = rank_on[as_index(device)];
    if (holder >= 0) {
      refuse("placement: rank {}: found device {}, which rank {} has, expected one rank a device", rank,
             device, holder);
    }
    holder = static_cast<int>(rank);
  }
}

}  // namespace ddl::topology
