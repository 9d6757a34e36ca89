#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "ddl/error.hpp"
#include "ddl/topology/cost_model.hpp"
#include "support/thrown_error.hpp"
#include "topology/graph/graph_builder.hpp"

namespace ddl::topology {
namespace {

std::string message_of(const std::function<void()>& call) {
  return test::message_of(ErrorCode::invalid_argument, call);
}

int host_of(const Topology& topology, int device) {
  const int node = topology.devices()[static_cast<std::size_t>(device)];
  return topology.nodes()[static_cast<std::size_t>(node)].host;
}

/// Two hosts whose devices alternate in the list of nodes.
Topology interleaved() {
  GraphBuilder graph;
  const int left = graph.add_host("left");
  const int right = graph.add_host("right");
  const int network = graph.add_network("network");
  for (const int host : {left, right}) {
    const int package = graph.add_node(host, "package", NodeKind::package);
    const int nic = graph.add_node(host, "nic", NodeKind::nic);
    graph.link(package, nic, LinkKind::pcie, 10, 1);
    graph.link(nic, network, LinkKind::network, 1, 1);
  }
  for (int i = 0; i < 3; ++i) {
    for (const int host : {left, right}) {
      if (i == 2 && host == left) continue;
      const int cpu = graph.add_node(host, fmt::format("cpu{}", i), NodeKind::cpu);
      graph.link(cpu, host == left ? 1 : 3, LinkKind::memory, 10, 0.1);
    }
  }
  return graph.finish();
}

// For ranks that mpirun places host by host, predictions would assume other hosts.
TEST(Placement, ByHostFillsOneHostAfterTheOther) {
  EXPECT_EQ(place_by_host(make_preset("ac922:2"), 6), (Placement{0, 1, 2, 3, 4, 5}));
  const Topology topology = interleaved();
  const Placement placement = place_by_host(topology, 5);
  std::vector<int> hosts;
  for (const int device : placement) hosts.push_back(host_of(topology, device));
  EXPECT_EQ(hosts, (std::vector<int>{0, 0, 1, 1, 1}));
}

TEST(Placement, RoundRobinDealsOutOverTheFewestHosts) {
  EXPECT_EQ(place_round_robin(make_preset("ac922:4"), 6), (Placement{0, 4, 1, 5, 2, 6}));
  const Topology topology = interleaved();
  std::vector<int> hosts;
  for (const int device : place_round_robin(topology, 5)) hosts.push_back(host_of(topology, device));
  EXPECT_EQ(hosts, (std::vector<int>{0, 1, 0, 1, 1}));
}

TEST(Placement, MoreRanksThanDevicesNamesBoth) {
  const Topology topology = make_preset("ac922:2");
  for (const auto place : {place_by_host, place_round_robin}) {
    const std::string message = message_of([&] { (void)place(topology, 9); });
    EXPECT_NE(message.find("9 ranks"), std::string::npos) << message;
    EXPECT_NE(message.find("at most 8"), std::string::npos) << message;
    EXPECT_NE(message_of([&] { (void)place(topology, 0); }).find("at least 1"), std::string::npos);
  }
}

TEST(Placement, AWrongOneIsRefused) {
  const Topology topology = make_preset("host:3");
  EXPECT_NO_THROW(require_valid(topology, {2, 0}));
  EXPECT_NE(message_of([&] { require_valid(topology, {}); }).find("no rank"), std::string::npos);
  EXPECT_NE(message_of([&] { require_valid(topology, {0, 3}); }).find("device 3"), std::string::npos);
  EXPECT_NE(message_of([&] { require_valid(topology, {-1}); }).find("device -1"), std::string::npos);
  const std::string twice = message_of([&] { require_valid(topology, {1, 0, 1}); });
  EXPECT_NE(twice.find("which rank 0 has"), std::string::npos) << twice;
}

}  // namespace
}  // namespace ddl::topology
