#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// A connected random cluster of up to eight different hosts with one to `most` devices in total: packages,
/// PCIe switches, NVLinks, NICs and one or two network switches, with links of random bandwidth and latency.
inline Topology random_cluster(unsigned seed, int most) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<std::string> hosts;
  std::vector<Node> nodes;
  std::vector<Link> links;
  const auto add = [&](NodeKind kind, int host) {
    nodes.push_back({fmt::format("{}{}", to_string(kind), nodes.size()), kind, host});
    return static_cast<int>(nodes.size()) - 1;
  };
  const auto join = [&](int from, int to, LinkKind kind, double slowest, double fastest) {
    const double share = static_cast<double>(below(1000)) / 999;
    links.push_back({from, to, kind, slowest + (fastest - slowest) * share, 0.1 * below(100),
                     below(8) == 0 ? Duplex::half : Duplex::full});
  };

  const int spine = add(NodeKind::network, -1);
  int leaf = spine;
  if (below(3) == 0) {
    leaf = add(NodeKind::network, -1);
    join(spine, leaf, LinkKind::network, 0.5, 50);
  }
  const int host_count = 1 + below(std::min(8, most));
  int left = most - host_count;  // devices beyond one per host
  for (int host = 0; host < host_count; ++host) {
    hosts.push_back(fmt::format("host{}", host));
    const int devices = 1 + below(std::min(left, 12) + 1);
    left -= devices - 1;
    const bool gpus = below(2) == 0;
    std::vector<int> packages{add(NodeKind::package, host)};
    if (below(2) == 0) {
      packages.push_back(add(NodeKind::package, host));
      join(packages[0], packages[1], LinkKind::socket, 5, 60);
    }
    std::vector<int> roots = packages;
    for (const int package : packages) {
      if (below(3) != 0) continue;
      roots.push_back(add(NodeKind::fabric, host));
      join(package, roots.back(), LinkKind::pcie, 8, 64);
    }
    const auto any_root = [&] {
      return roots[static_cast<std::size_t>(below(static_cast<int>(roots.size())))];
    };
    std::vector<int> mine;
    for (int i = 0; i < devices; ++i) {
      mine.push_back(add(gpus ? NodeKind::gpu : NodeKind::cpu, host));
      join(mine.back(), any_root(), gpus ? LinkKind::pcie : LinkKind::memory, 5, 32);
    }
    for (std::size_t i = 1; gpus && i < mine.size(); ++i) {
      const auto other = static_cast<std::size_t>(below(static_cast<int>(i)));
      if (below(3) != 0) join(mine[i], mine[other], LinkKind::nvlink, 20, 300);
    }
    for (int nics = 1 + below(2); nics > 0; --nics) {
      const int nic = add(NodeKind::nic, host);
      join(nic, any_root(), LinkKind::pcie, 8, 64);
      join(nic, below(2) == 0 ? spine : leaf, LinkKind::network, 0.1, 25);
    }
  }
  return {hosts, nodes, links};
}

/// One or more of the devices, in any order.
inline Placement random_placement(const Topology& topology, unsigned seed) {
  std::mt19937 random(seed);
  Placement placement(topology.devices().size());
  std::iota(placement.begin(), placement.end(), 0);
  std::shuffle(placement.begin(), placement.end(), random);
  if (random() % 2 == 0) placement.resize(1 + random() % placement.size());
  if (random() % 3 == 0) std::ranges::sort(placement);
  return placement;
}

}  // namespace ddl::topology
