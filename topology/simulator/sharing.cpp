#include "topology/simulator/sharing.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "ddl/hash.hpp"

namespace ddl::topology {
namespace {

constexpr double bytes_per_us = 1e3;  // in a GB/s

struct Resource {
  double capacity;
  std::uint64_t flows = 0;  // sum of the hashes of those that use it
};

}  // namespace

Sharing share_channels(const Topology& topology, std::span<const std::span<const Channel>> routes) {
  std::unordered_map<Channel, std::uint32_t> index_of;
  std::vector<Resource> resources;
  FlowPaths all;
  for (std::uint32_t flow = 0; flow < routes.size(); ++flow) {
    for (const Channel channel : routes[flow]) {
      const Link& link = topology.links()[static_cast<std::size_t>(link_of(channel))];
      const Channel shared = link.duplex == Duplex::half ? 2 * link_of(channel) : channel;
      const auto [entry, is_new] = index_of.try_emplace(shared, static_cast<std::uint32_t>(resources.size()));
      if (is_new) resources.push_back({link.bandwidth * bytes_per_us});
      resources[entry->second].flows += mix(flow);
      all.resources.push_back(entry->second);
    }
    all.begin.push_back(static_cast<std::uint32_t>(all.resources.size()));
  }

  std::unordered_map<std::uint64_t, std::uint32_t> narrowest;
  for (std::uint32_t i = 0; i < resources.size(); ++i) {
    const auto [entry, is_new] = narrowest.try_emplace(resources[i].flows, i);
    if (!is_new && resources[i].capacity < resources[entry->second].capacity) entry->second = i;
  }
  Sharing result;
  std::vector<std::uint32_t> number(resources.size(), UINT32_MAX);
  for (std::uint32_t i = 0; i < resources.size(); ++i) {
    if (narrowest.at(resources[i].flows) != i) continue;
    number[i] = static_cast<std::uint32_t>(result.capacities.size());
    result.capacities.push_back(resources[i].capacity);
  }
  result.paths.begin.reserve(all.begin.size());
  for (std::uint32_t flow = 0; flow < all.flows(); ++flow) {
    for (const std::uint32_t resource : all.of(flow)) {
      if (number[resource] != UINT32_MAX) result.paths.resources.push_back(number[resource]);
    }
    result.paths.begin.push_back(static_cast<std::uint32_t>(result.paths.resources.size()));
  }
  return result;
}

}  // namespace ddl::topology
