#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "topology/graph_support.hpp"

namespace ddl::topology {
namespace {

using Names = std::vector<std::string>;

/// The bandwidth in GB/s of the link of a kind between two nodes; 0 if there is none.
double bandwidth(const Topology& topology, const std::string& a, const std::string& b, LinkKind kind) {
  const int first = find(topology, a);
  const int second = find(topology, b);
  for (const int index : topology.links_at(first)) {
    const Link& link = topology.links()[static_cast<std::size_t>(index)];
    if (link.kind == kind && topology.other_end(index, first) == second) return link.bandwidth;
  }
  return 0;
}

/// The sum of bandwidths of a node's links of a kind.
double bandwidth_sum(const Topology& topology, const std::string& name, LinkKind kind) {
  double sum = 0;
  for (const int index : topology.links_at(find(topology, name))) {
    const Link& link = topology.links()[static_cast<std::size_t>(index)];
    if (link.kind == kind) sum += link.bandwidth;
  }
  return sum;
}

std::vector<std::string> sized_presets() {
  return {"ac922",
          "ac922:4",
          "dgx1v:2",
          "dgx2",
          "dgx2:3",
          "dgx_a100:2",
          "dgx_h100:2",
          "dgx_h100_rails:3",
          "ethernet:1x2",
          "ethernet:4x4@1gbit",
          "ethernet:3x1@100gbit",
          "host:1",
          "host:6"};
}

// ddl-topo presets would list machines that cannot be made, or wrong numbers of devices.
TEST(Presets, EveryListedOneCanBeMade) {
  ASSERT_EQ(presets().size(), 8U);
  for (const Preset& preset : presets()) {
    SCOPED_TRACE(preset.name);
    EXPECT_FALSE(preset.description.empty());
    if (preset.devices_per_host == 0) continue;
    EXPECT_EQ(make_preset(preset.name).devices().size(), static_cast<std::size_t>(preset.devices_per_host));
    const Topology three = make_preset(std::string(preset.name) + ":3");
    EXPECT_EQ(three.devices().size(), static_cast<std::size_t>(3 * preset.devices_per_host));
    EXPECT_EQ(three.hosts(), (Names{"h0", "h1", "h2"}));
  }
  EXPECT_EQ(make_preset("ethernet:4x3").devices().size(), 12U);
  EXPECT_EQ(make_preset("host:5").devices().size(), 5U);
}

// Ranks of one host would be on devices of several hosts, because rank d is on device d.
TEST(Presets, DevicesComeHostByHost) {
  const Topology topology = make_preset("dgx2:2");
  for (std::size_t d = 0; d < topology.devices().size(); ++d) {
    const Node& node = topology.nodes()[static_cast<std::size_t>(topology.devices()[d])];
    EXPECT_EQ(node.name, fmt::format("h{}/gpu{}", d / 16, d % 16));
    EXPECT_EQ(node.host, static_cast<int>(d / 16));
  }
}

TEST(Presets, Ac922IsTheArticlesMachine) {
  const Topology topology = make_preset("ac922:4");
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu0", "h0/gpu1", LinkKind::nvlink), 75);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu2", "h0/gpu3", LinkKind::nvlink), 75);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu1", "h0/gpu2", LinkKind::nvlink), 0);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu2", "h0/package1", LinkKind::nvlink), 75);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/package0", "h0/package1", LinkKind::socket), 32);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h3/nic0", "network", LinkKind::network), 12.5);
  EXPECT_DOUBLE_EQ(bandwidth_sum(topology, "network", LinkKind::network), 50);
  EXPECT_EQ(route_names(topology, "h0/gpu0", "h0/gpu1"), (Names{"h0/gpu0", "h0/gpu1"}));
  EXPECT_EQ(route_names(topology, "h0/gpu0", "h0/gpu2"),
            (Names{"h0/gpu0", "h0/package0", "h0/package1", "h0/gpu2"}));
  EXPECT_EQ(route_names(topology, "h0/gpu0", "h1/gpu3"),
            (Names{"h0/gpu0", "h0/package0", "h0/nic0", "network", "h1/nic0", "h1/package1", "h1/gpu3"}));
}

TEST(Presets, Dgx1vIsTheHybridCubeMesh) {
  const Topology topology = make_preset("dgx1v:2");
  for (int gpu = 0; gpu < 8; ++gpu) {  // six links each
    EXPECT_DOUBLE_EQ(bandwidth_sum(topology, fmt::format("h1/gpu{}", gpu), LinkKind::nvlink), 150);
  }
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu0", "h0/gpu1", LinkKind::nvlink), 50);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu0", "h0/gpu2", LinkKind::nvlink), 25);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu0", "h0/gpu4", LinkKind::nvlink), 50);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu0", "h0/gpu5", LinkKind::nvlink), 0);
  EXPECT_EQ(route_names(topology, "h0/gpu0", "h0/gpu3").size(), 2U);
  EXPECT_EQ(route_names(topology, "h0/gpu0", "h0/gpu5"),
            (Names{"h0/gpu0", "h0/pcie0", "h0/package0", "h0/package1", "h0/pcie2", "h0/gpu5"}));
  EXPECT_EQ(route_names(topology, "h0/gpu2", "h1/gpu7"),
            (Names{"h0/gpu2", "h0/pcie1", "h0/nic1", "network", "h1/nic3", "h1/pcie3", "h1/gpu7"}));
}

// Plans would assume that all traffic of a host uses one NIC.
TEST(Presets, SwitchedMachinesUseTheNearestNic) {
  struct Machine {
    std::string name;
    int gpus;
    double nvlink;
    double nic;
  };
  for (const auto& [name, gpus, nvlink, nic] :
       {Machine{"dgx2", 16, 150, 12.5}, Machine{"dgx_a100", 8, 300, 25}, Machine{"dgx_h100", 8, 450, 50}}) {
    SCOPED_TRACE(name);
    const Topology topology = make_preset(name + ":2");
    std::map<std::string, int> used;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      const std::string local = fmt::format("h0/gpu{}", gpu);
      const std::string remote = fmt::format("h1/gpu{}", gpu);
      EXPECT_DOUBLE_EQ(bandwidth(topology, local, "h0/nvswitch", LinkKind::nvlink), nvlink);
      const Names way = route_names(topology, local, remote);
      ASSERT_EQ(way.size(), 7U);
      EXPECT_EQ(way[1].substr(0, 7), "h0/pcie");
      EXPECT_DOUBLE_EQ(bandwidth(topology, way[2], "network", LinkKind::network), nic);
      ++used[way[2]];
      if (gpu > 0) {
        EXPECT_EQ(route_names(topology, "h0/gpu0", local), (Names{"h0/gpu0", "h0/nvswitch", local}));
      }
    }
    EXPECT_EQ(used.size(), 8U);  // with fewer, some NICs would carry more than others
    EXPECT_DOUBLE_EQ(bandwidth_sum(topology, "network", LinkKind::network), 2 * 8 * nic);
  }
}

// Plans would send all traffic over one rail, or over the narrow spine.
TEST(Presets, RailsJoinTheNicsOfOneNumber) {
  const Topology topology = make_preset("dgx_h100_rails:4");
  EXPECT_EQ(route_names(topology, "h0/gpu5", "h3/gpu5"),
            (Names{"h0/gpu5", "h0/pcie5", "h0/nic5", "rail5", "h3/nic5", "h3/pcie5", "h3/gpu5"}));
  EXPECT_DOUBLE_EQ(bandwidth_sum(topology, "rail5", LinkKind::network), 4 * 50 + 50);
  EXPECT_DOUBLE_EQ(bandwidth_sum(topology, "spine", LinkKind::network), 8 * 50);
}

TEST(Presets, EthernetHasTheRateThatWasAskedFor) {
  EXPECT_DOUBLE_EQ(bandwidth(make_preset("ethernet:2x1"), "h1/nic0", "network", LinkKind::network), 1.25);
  EXPECT_DOUBLE_EQ(bandwidth(make_preset("ethernet:2x1@1gbit"), "h1/nic0", "network", LinkKind::network),
                   0.125);
  EXPECT_DOUBLE_EQ(bandwidth(make_preset("ethernet:2x1@2.5gbit"), "h1/nic0", "network", LinkKind::network),
                   0.3125);
  EXPECT_DOUBLE_EQ(bandwidth(make_preset("ethernet:2x1@100mbit"), "h1/nic0", "network", LinkKind::network),
                   0.0125);
  const Topology fast = make_preset("ethernet:2x2@400gbit");
  EXPECT_DOUBLE_EQ(bandwidth(fast, "h1/nic0", "network", LinkKind::network), 50);
  EXPECT_GE(bandwidth(fast, "h1/nic0", "h1/package0", LinkKind::pcie), 50);
  EXPECT_EQ(route_names(fast, "h0/cpu0", "h0/cpu1"), (Names{"h0/cpu0", "h0/package0", "h0/cpu1"}));
  EXPECT_EQ(route_names(make_preset("host:2"), "h0/cpu0", "h0/cpu1"),
            (Names{"h0/cpu0", "h0/package0", "h0/cpu1"}));
}

TEST(Presets, RoutesJoinAllDevicesWithoutLoopsOrOtherDevices) {
  for (const std::string& name : sized_presets()) {
    SCOPED_TRACE(name);
    const Topology topology = make_preset(name);
    for (const int from : topology.devices()) {
      for (const int to : topology.devices()) {
        int at = from;
        std::set<int> passed{from};
        for (const Channel channel : topology.route(from, to)) {
          const Link& link = topology.links()[static_cast<std::size_t>(link_of(channel))];
          ASSERT_EQ(channel % 2 == 0 ? link.from : link.to, at);
          at = channel % 2 == 0 ? link.to : link.from;
          ASSERT_TRUE(passed.insert(at).second);
          ASSERT_TRUE(at == to || !is_device(topology.nodes()[static_cast<std::size_t>(at)].kind));
        }
        ASSERT_EQ(at, to);
      }
    }
  }
}

// Planning for 65,536 devices would take hours or exhaust memory.
TEST(Presets, SixteenThousandHostsCanBeRouted) {
  const Topology topology = make_preset("ac922:16384");
  ASSERT_EQ(topology.devices().size(), 65536U);
  for (std::size_t d = 0; d < 65536; d += 13) {
    const auto way = topology.route(topology.devices()[d], topology.devices()[65535 - d]);
    ASSERT_EQ(way.size(), 6U);
  }
}

TEST(Presets, ErrorsNameWhatCanBeSaid) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"",
       "found name '', expected one of ac922, dgx1v, dgx2, dgx_a100, dgx_h100, dgx_h100_rails, ethernet, "
       "host"},
      {"dgx3:4", "found name 'dgx3', expected one of ac922"},
      {"AC922", "found name 'AC922'"},
      {"ac922:", "found '', expected a number of hosts from 1 to 1000000"},
      {"ac922:0", "found '0', expected a number of hosts"},
      {"ac922:-1", "found '-1'"},
      {"ac922:4x", "found '4x'"},
      {"ac922:1e3", "found '1e3'"},
      {"ac922: 4", "found ' 4'"},
      {"ac922:99999999999", "found '99999999999'"},
      {"ac922:1000000",
       "found 1000000 hosts of 7 nodes and 10 links each, expected fewer than 1000000 nodes and links in "
       "all"},
      {"host", "found no number of ranks, expected host:RANKS"},
      {"host:1000000", "found 1 hosts of 1000001 nodes"},
      {"host:x", "found 'x', expected a number of ranks"},
      {"ethernet", "found no sizes, expected ethernet:HOSTSxRANKS[@RATE]"},
      {"ethernet:4", "found '4', expected HOSTSxRANKS"},
      {"ethernet:4x", "found '', expected a number of ranks per host"},
      {"ethernet:x4", "found '', expected a number of hosts"},
      {"ethernet:0x4", "found '0'"},
      {"ethernet:1000x1000", "found 1000 hosts of 1002 nodes"},
      {"ethernet:2x2@", "found rate '', expected a number above 0 with a unit, as in 1gbit"},
      {"ethernet:2x2@10", "found rate '10'"},
      {"ethernet:2x2@0gbit", "found rate '0gbit'"},
      {"ethernet:2x2@-1gbit", "found rate '-1gbit'"},
      {"ethernet:2x2@nangbit", "found rate 'nangbit'"},
      {"ethernet:2x2@infgbit", "found rate 'infgbit'"},
      {"ethernet:2x2@99999999999tbit", "found rate '99999999999tbit'"},
      {"ethernet:2x2@10Gbit", "found rate '10Gbit'"},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(text);
    const std::string error = error_of([&, &name = text] { make_preset(name); });
    expect_contains(error, "invalid_argument: topology preset '" + text + "': ");
    expect_contains(error, message);
  }
}

}  // namespace
}  // namespace ddl::topology
