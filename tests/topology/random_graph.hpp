#pragma once

#include <fmt/format.h>

#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// A random graph of up to three small hosts with all kinds of nodes. Links have few different figures, so
/// that routes often tie. With `connected`, links are added until it is; else Topology's constructor may
/// refuse it.
inline Topology random_graph(unsigned seed, bool connected = false) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  std::vector<std::string> hosts;
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::set<std::tuple<int, int, LinkKind>> taken;
  const auto add = [&](NodeKind kind, int host, int count) {
    for (int i = 0; i < count; ++i) nodes.push_back({fmt::format("n{}", nodes.size()), kind, host});
  };
  const auto join = [&](int from, int to, LinkKind kind) {
    if (from == to || taken.contains({from, to, kind}) || taken.contains({to, from, kind})) return;
    taken.insert({from, to, kind});
    links.push_back({from, to, kind, 10.0 * (1 + below(3)), 0.25 * below(4),
                     below(4) == 0 ? Duplex::half : Duplex::full});
  };
  const auto size = [&] { return static_cast<int>(nodes.size()); };

  add(NodeKind::network, -1, connected ? 1 : below(3));
  const int networks = size();
  for (int i = 1; i < networks; ++i) join(0, i, LinkKind::network);
  const int host_count = 1 + below(3);
  for (int host = 0; host < host_count; ++host) {
    hosts.push_back(fmt::format("h{}", host));
    const int first = size();
    add(NodeKind::package, host, 1 + below(2));
    add(NodeKind::fabric, host, below(2));
    const int first_device = size();
    add(below(2) == 0 ? NodeKind::cpu : NodeKind::gpu, host, 1 + below(3));
    const int first_nic = size();
    add(NodeKind::nic, host, 1 + below(2));
    for (int node = first + 1; node < size(); ++node) {
      if (connected || below(8) != 0)
        join(first + below(static_cast<unsigned>((node < first_device ? node : first_device) - first)), node,
             LinkKind::pcie);
    }
    for (int i = below(6); i > 0; --i) {
      const auto within = [&] { return first + below(static_cast<unsigned>(size() - first)); };
      const int from = within();
      join(from, within(), LinkKind::nvlink);
    }
    for (int nic = first_nic; nic < size() && networks > 0; ++nic) {
      if (connected || below(8) != 0) join(nic, below(static_cast<unsigned>(networks)), LinkKind::network);
    }
  }
  for (int i = below(3); i > 0; --i) {
    const int from = below(static_cast<unsigned>(size()));
    join(from, below(static_cast<unsigned>(size())), LinkKind::socket);
  }
  return {hosts, nodes, links};
}

}  // namespace ddl::topology
