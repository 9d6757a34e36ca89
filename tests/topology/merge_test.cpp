// Merging descriptions of hosts to one topology.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "ddl/error.hpp"
#include "ddl/topology/discovery.hpp"

namespace ddl::topology {
namespace {

HostDescription two_sockets(std::string name) {
  HostDescription host;
  host.hostname = std::move(name);
  host.cpu = {.architecture = "ppc64le", .vendor = "", .name = "POWER9"};
  host.packages = {{.socket = 0, .numa_node = 0, .cpus = {0, 1, 2, 3}, .cores = 4},
                   {.socket = 8, .numa_node = 8, .cpus = {4, 5, 6, 7}, .cores = 4}};
  host.nics = {{.name = "eth0", .pci = {}, .speed = 100, .is_up = true}};
  return host;
}

GpuDescription gpu_at(std::string address, int numa_node, std::vector<NvlinkDescription> nvlinks) {
  return {.pci = {.address = std::move(address), .bridges = {}, .numa_node = numa_node},
          .model = "V100",
          .compute_capability = 70,
          .nvlinks = std::move(nvlinks)};
}

std::optional<Link> link_between(const Topology& topology, const std::string& a, const std::string& b,
                                 LinkKind kind) {
  for (const Link& link : topology.links()) {
    const std::string& from = topology.nodes()[static_cast<std::size_t>(link.from)].name;
    const std::string& to = topology.nodes()[static_cast<std::size_t>(link.to)].name;
    if (link.kind == kind && ((from == a && to == b) || (from == b && to == a))) return link;
  }
  return std::nullopt;
}

double bandwidth(const Topology& topology, const std::string& a, const std::string& b, LinkKind kind) {
  const std::optional<Link> link = link_between(topology, a, b, kind);
  return link ? link->bandwidth : 0;
}

std::string device_name(const Topology& topology, std::size_t rank) {
  return topology.nodes()[static_cast<std::size_t>(topology.devices()[rank])].name;
}

bool has_node(const Topology& topology, const std::string& name) {
  for (const Node& node : topology.nodes()) {
    if (node.name == name) return true;
  }
  return false;
}

// Plans would be made for another placement than mpirun's.
TEST(Merge, DevicesAreInTheOrderOfRanks) {
  const std::vector<HostDescription> hosts = {two_sockets("a"), two_sockets("b")};
  const Topology by_host = merge(hosts, std::vector<int>{0, 0, 1, 1}, NodeKind::cpu);
  const Topology round_robin = merge(hosts, std::vector<int>{0, 1, 0, 1}, NodeKind::cpu);
  EXPECT_EQ(by_host.hosts(), (std::vector<std::string>{"a", "b"}));
  const std::vector<std::string> expected_by_host = {"h0/cpu0", "h0/cpu1", "h1/cpu0", "h1/cpu1"};
  const std::vector<std::string> expected_round_robin = {"h0/cpu0", "h1/cpu0", "h0/cpu1", "h1/cpu1"};
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(device_name(by_host, rank), expected_by_host[rank]);
    EXPECT_EQ(device_name(round_robin, rank), expected_round_robin[rank]);
  }
  EXPECT_EQ(merge(hosts, std::vector<int>{0, 0, 1, 1}, NodeKind::cpu).hash(), by_host.hash());
}

TEST(Merge, SpreadsCpuRanksOverThePackages) {
  const HostDescription host = two_sockets("a");
  const Topology topology = merge(std::span(&host, 1), std::vector<int>(3, 0), NodeKind::cpu);
  EXPECT_GT(bandwidth(topology, "h0/cpu0", "h0/package0", LinkKind::memory), 0);
  EXPECT_GT(bandwidth(topology, "h0/cpu1", "h0/package0", LinkKind::memory), 0);
  EXPECT_GT(bandwidth(topology, "h0/cpu2", "h0/package1", LinkKind::memory), 0);
  EXPECT_EQ(bandwidth(topology, "h0/package0", "h0/package1", LinkKind::socket), 32) << "POWER9's X-bus";
  // More ranks than cores are fine: a trainer may oversubscribe.
  EXPECT_EQ(merge(std::span(&host, 1), std::vector<int>(50, 0), NodeKind::cpu).devices().size(), 50u);
}

// Plans would have more phases than they need, and crowded ranks wait for one another in each.
TEST(Merge, CpuRanksThatTakeTurnsShareACoresBandwidthAndWait) {
  const std::vector<HostDescription> hosts = {two_sockets("a")};
  const auto link_of_rank_0 = [&](std::size_t ranks) {
    const Topology topology = merge(hosts, std::vector<int>(ranks, 0), NodeKind::cpu);
    return link_between(topology, "h0/cpu0", "h0/package0", LinkKind::memory);
  };
  const std::optional<Link> alone = link_of_rank_0(8);
  const std::optional<Link> crowded = link_of_rank_0(24);  // 3 for each CPU
  ASSERT_TRUE(alone && crowded);
  EXPECT_DOUBLE_EQ(alone->bandwidth, 24);
  EXPECT_DOUBLE_EQ(alone->latency, 0.1);
  EXPECT_DOUBLE_EQ(crowded->bandwidth, 24 / 3.0);
  EXPECT_DOUBLE_EQ(crowded->latency, 0.1 + 2 * 1.0);  // 1 us for each other rank
}

// A discovered AC922 would differ from the preset.
TEST(Merge, JoinsGpusByTheirNvlinks) {
  HostDescription host = two_sockets("a");
  host.gpus = {
      gpu_at("0004:04:00.0", 0, {{NvlinkPeer::gpu, "0004:05:00.0", 3}, {NvlinkPeer::cpu, "", 3}}),
      gpu_at("0004:05:00.0", 0, {{NvlinkPeer::gpu, "0004:04:00.0", 3}, {NvlinkPeer::cpu, "", 3}}),
      gpu_at("0035:03:00.0", 8, {{NvlinkPeer::gpu, "0035:04:00.0", 3}, {NvlinkPeer::cpu, "", 3}}),
      gpu_at("0035:04:00.0", 8, {{NvlinkPeer::cpu, "", 3}})};  // the other end does not report the links
  const Topology topology = merge(std::span(&host, 1), std::vector<int>(4, 0), NodeKind::gpu);
  EXPECT_EQ(bandwidth(topology, "h0/gpu0", "h0/gpu1", LinkKind::nvlink), 75);
  EXPECT_EQ(bandwidth(topology, "h0/gpu2", "h0/gpu3", LinkKind::nvlink), 75);
  EXPECT_EQ(bandwidth(topology, "h0/gpu0", "h0/package0", LinkKind::nvlink), 75);
  EXPECT_EQ(bandwidth(topology, "h0/gpu3", "h0/package1", LinkKind::nvlink), 75);
  EXPECT_FALSE(link_between(topology, "h0/gpu1", "h0/gpu2", LinkKind::nvlink));
  // Fewer ranks than GPUs: the first GPUs.
  const Topology half = merge(std::span(&host, 1), std::vector<int>(2, 0), NodeKind::gpu);
  EXPECT_EQ(half.devices().size(), 2u);
  EXPECT_FALSE(has_node(half, "h0/gpu2"));
}

TEST(Merge, JoinsGpusByTheNvswitch) {
  HostDescription host = two_sockets("a");
  for (int i = 0; i < 8; ++i) {
    host.gpus.push_back(
        gpu_at("0000:1" + std::to_string(i) + ":00.0", i < 4 ? 0 : 8, {{NvlinkPeer::nvswitch, "", 18}}));
    host.gpus.back().compute_capability = 90;
  }
  const Topology topology = merge(std::span(&host, 1), std::vector<int>(8, 0), NodeKind::gpu);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(bandwidth(topology, "h0/gpu" + std::to_string(i), "h0/nvswitch", LinkKind::nvlink), 450);
  }
  EXPECT_EQ(topology.route(topology.devices()[0], topology.devices()[7]).size(), 2u);
}

// GPUs that share a PCIe uplink would be planned for as if each had its own.
TEST(Merge, FindsPcieSwitches) {
  HostDescription host = two_sockets("a");
  for (const char* address : {"0000:06:00.0", "0000:07:00.0", "0000:0a:00.0"})
    host.gpus.push_back(gpu_at(address, 0, {}));
  host.gpus[0].pci.bridges = {"0000:00:01.0", "0000:04:00.0", "0000:05:00.0"};
  host.gpus[1].pci.bridges = {"0000:00:01.0", "0000:04:00.0", "0000:05:01.0"};
  host.gpus[2].pci.bridges = {"0000:00:02.0", "0000:08:00.0",
                              "0000:09:00.0"};  // the only one behind its switch
  host.gpus[0].pci.bandwidth = 31.5;
  const Topology topology = merge(std::span(&host, 1), std::vector<int>(3, 0), NodeKind::gpu);
  EXPECT_EQ(bandwidth(topology, "h0/gpu0", "h0/pcie0", LinkKind::pcie), 31.5);
  EXPECT_GT(bandwidth(topology, "h0/gpu1", "h0/pcie0", LinkKind::pcie), 0);
  EXPECT_GT(bandwidth(topology, "h0/pcie0", "h0/package0", LinkKind::pcie), 0);
  EXPECT_GT(bandwidth(topology, "h0/gpu2", "h0/package0", LinkKind::pcie), 0);
  EXPECT_FALSE(has_node(topology, "h0/pcie1"));
}

TEST(Merge, ChoosesTheNicsThatCarryTheJob) {
  std::vector<HostDescription> hosts(2, two_sockets("same"));
  hosts[0].nics = {
      {.name = "docker0", .pci = {}, .speed = 10, .is_up = true, .is_virtual = true},
      {.name = "down0", .pci = {}, .speed = 400, .is_up = false},
      {.name = "fast0",
       .pci = {.address = "0000:01:00.0", .bridges = {}, .numa_node = 8},
       .speed = 100,
       .is_up = true},
      {.name = "management", .pci = {}, .speed = 1, .is_up = true},
      {.name = "silent", .pci = {}, .speed = 0, .is_up = true}};  // assumed to be a slow management interface
  hosts[1].nics = {{.name = "veth0", .pci = {}, .speed = 0, .is_up = true, .is_virtual = true}};
  const Topology topology = merge(hosts, std::vector<int>{0, 1}, NodeKind::cpu);
  EXPECT_EQ(topology.hosts(), (std::vector<std::string>{"same", "same-2"}));
  EXPECT_EQ(bandwidth(topology, "h0/fast0", "network", LinkKind::network), 12.5);
  EXPECT_GT(bandwidth(topology, "h0/fast0", "h0/package1", LinkKind::pcie), 0);
  for (const char* name : {"h0/docker0", "h0/down0", "h0/management", "h0/silent"})
    EXPECT_FALSE(has_node(topology, name));
  EXPECT_EQ(bandwidth(topology, "h1/veth0", "network", LinkKind::network), 1.25)
      << "10 Gb/s where nothing is known";
  // Ranks that have exchanged descriptions have a network, whatever sysfs shows.
  hosts[1].nics.clear();
  EXPECT_TRUE(has_node(merge(hosts, std::vector<int>{0, 1}, NodeKind::cpu), "h1/nic0"));
}

// Unusual host names, and hosts without ranks, would be errors.
TEST(Merge, CopesWithOddHosts) {
  std::vector<HostDescription> hosts = {two_sockets("n\xc3\xa4me \n"), two_sockets("unused"),
                                        two_sockets("")};
  const Topology topology = merge(hosts, std::vector<int>{2, 0}, NodeKind::cpu);
  ASSERT_EQ(topology.hosts().size(), 2u);
  EXPECT_EQ(topology.hosts()[0], "n??me??");
  EXPECT_EQ(topology.hosts()[1], "?");
  EXPECT_EQ(device_name(topology, 0), "h1/cpu0");
  EXPECT_EQ(topology_from_json(to_json(topology), "test"), topology);
}

TEST(Merge, RefusesWhatCannotBe) {
  const std::vector<HostDescription> hosts = {two_sockets("a")};
  const std::vector<HostDescription> bare(1);
  struct Case {
    std::span<const HostDescription> hosts;
    std::vector<int> ranks;
    NodeKind device;
    const char* expected;
  };
  const Case cases[] = {{hosts, {}, NodeKind::cpu, "found no ranks"},
                        {hosts, {0, 1}, NodeKind::cpu, "found rank 1 on host 1, expected one of 0 to 0"},
                        {hosts, {-1}, NodeKind::cpu, "found rank 0 on host -1"},
                        {hosts, {0}, NodeKind::gpu, "host 'a': found 1 ranks and 0 GPUs"},
                        {hosts, {0}, NodeKind::nic, "found devices of kind nic, expected cpu or gpu"},
                        {bare, {0}, NodeKind::cpu, "found no packages"}};
  for (const Case& c : cases) {
    try {
      merge(c.hosts, c.ranks, c.device);
      ADD_FAILURE() << "accepted, expected " << c.expected;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(c.expected), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace ddl::topology
