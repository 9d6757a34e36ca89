#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// Collects a graph; the `Topology` that `finish` returns has checked it.
struct GraphBuilder {
  std::vector<std::string> hosts;
  std::vector<Node> nodes;
  std::vector<Link> links;

  int add_host(std::string name) {
    hosts.push_back(std::move(name));
    return static_cast<int>(hosts.size()) - 1;
  }
  /// Adds a node named "HOST/name".
  int add_node(int host, const std::string& name, NodeKind kind) {
    nodes.push_back({hosts[as_index(host)] + '/' + name, kind, host});
    return static_cast<int>(nodes.size()) - 1;
  }
  int add_network(std::string name) {
    nodes.push_back({std::move(name), NodeKind::network, -1});
    return static_cast<int>(nodes.size()) - 1;
  }
  void link(int from, int to, LinkKind kind, double bandwidth, double latency, Duplex duplex = Duplex::full) {
    links.push_back({from, to, kind, bandwidth, latency, duplex});
  }
  /// Adds a network node that is linked to each of the NICs.
  void link_all(const std::vector<int>& nics, std::string network, double bandwidth, double latency) {
    const int node = add_network(std::move(network));
    for (const int nic : nics) link(nic, node, LinkKind::network, bandwidth, latency);
  }
  Topology finish() { return {std::move(hosts), std::move(nodes), std::move(links)}; }
};

}  // namespace ddl::topology
