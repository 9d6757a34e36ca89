// Discovery on this host, and on hosts made of files, a fake NVML and a fake CUDA.
#include "ddl/topology/discovery.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/utsname.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "ddl/error.hpp"
#include "support/environment_variable.hpp"
#include "tests/topology/fake_sysfs.hpp"
#include "topology/discovery/sysfs.hpp"

namespace ddl::topology {
namespace {

using ddl::test::FakeSysfs;

DiscoveryOptions without_gpus(const FakeSysfs& sysfs) {
  return {.sysfs = sysfs.root(), .nvml = "libddl-no-such-library.so"};
}

using Environment = test::EnvironmentVariable;

HostDescription with_gpus(const char* scenario, const char* library, const FakeSysfs& sysfs) {
  const Environment playing("DDL_FAKE_NVML", scenario);
  DiscoveryOptions options = without_gpus(sysfs);
  options.nvml = library;
  return discover_host(options);
}

int links_to_gpu(const GpuDescription& gpu, const std::string& address) {
  int count = 0;
  for (const NvlinkDescription& link : gpu.nvlinks) {
    if (link.peer == NvlinkPeer::gpu && link.address == address) count += link.count;
  }
  return count;
}

int links_to(const GpuDescription& gpu, NvlinkPeer peer) {
  int count = 0;
  for (const NvlinkDescription& link : gpu.nvlinks) count += link.peer == peer ? link.count : 0;
  return count;
}

// Users without a topology file could not start.
TEST(Discovery, DescribesThisMachine) {
  const HostDescription host = discover_host();
  EXPECT_FALSE(host.hostname.empty());
  EXPECT_FALSE(host.cpu.architecture.empty());
  ASSERT_GE(host.packages.size(), 1u);
  std::set<int> cpus;
  for (const PackageDescription& package : host.packages) {
    EXPECT_GE(package.cores, 1);
    EXPECT_LE(package.cores, static_cast<int>(package.cpus.size()));
    for (const int cpu : package.cpus) EXPECT_TRUE(cpus.insert(cpu).second) << "CPU " << cpu << " twice";
  }
  std::set<std::string> nics;
  for (const NicDescription& nic : host.nics) {
    EXPECT_NE(nic.name, "lo");
    EXPECT_TRUE(nics.insert(nic.name).second) << nic.name << " twice";
  }
  EXPECT_EQ(host_description_from_json(to_json(host), "this machine"), host);

  const std::vector<int> ranks(3, 0);
  const Topology topology = merge(std::span(&host, 1), ranks, NodeKind::cpu);
  EXPECT_EQ(topology.devices().size(), 3u);
}

// Ranks of a host that are bound to different cores would find different hosts.
TEST(Discovery, IsTheSameEveryTime) { EXPECT_EQ(discover_host(), discover_host()); }

TEST(Discovery, ReadsNicsFromSysfs) {
  const FakeSysfs sysfs;
  sysfs.add_pci_device("pci0000:40/0000:40:01.0/0000:41:00.0", 1, "16.0 GT/s PCIe", "16", "0x020000");
  sysfs.add_pci_device("pci0000:00/0000:00:03.0", 0, "Unknown", "255", "0x020000");
  sysfs.write("devices/pci0000:40/0000:40:01.0/max_link_speed", "8.0 GT/s PCIe");  // an older slot
  sysfs.write("devices/pci0000:40/0000:40:01.0/max_link_width", "16");
  sysfs.add_interface("eth1", "pci0000:40/0000:40:01.0/0000:41:00.0", "up", "100000");
  sysfs.add_interface("eth0", "pci0000:00/0000:00:03.0/virtio2", "up", "-1");
  sysfs.add_interface("ib0", "pci0000:40/0000:40:01.0/0000:41:00.0/other", "down", "4294967295", "32");
  sysfs.add_interface("docker0", "", "up", "10000");
  sysfs.add_interface("lo", "", "unknown", "", "772");
  const HostDescription host = discover_host(without_gpus(sysfs));

  ASSERT_EQ(host.nics.size(), 4u);  // sorted by name, without lo
  const NicDescription& docker = host.nics[0];
  EXPECT_EQ(docker.name, "docker0");
  EXPECT_TRUE(docker.is_virtual);
  EXPECT_EQ(docker.pci.address, "");
  const NicDescription& virtio = host.nics[1];
  EXPECT_EQ(virtio.name, "eth0");
  EXPECT_FALSE(virtio.is_virtual);
  EXPECT_TRUE(virtio.is_up);
  EXPECT_EQ(virtio.speed, 0) << "-1 is the kernel's way to say unknown";
  EXPECT_EQ(virtio.pci.address, "0000:00:03.0") << "the PCI device is above the virtio device";
  EXPECT_EQ(virtio.pci.bandwidth, 0);
  EXPECT_TRUE(virtio.pci.bridges.empty());
  const NicDescription& fast = host.nics[2];
  EXPECT_EQ(fast.speed, 100);
  EXPECT_EQ(fast.pci.numa_node, 1);
  EXPECT_EQ(fast.pci.bridges, std::vector<std::string>{"0000:40:01.0"});
  EXPECT_NEAR(fast.pci.bandwidth, 15.75, 0.01) << "the slot's generation 3, not the card's 4";
  const NicDescription& infiniband = host.nics[3];
  EXPECT_TRUE(infiniband.is_infiniband);
  EXPECT_FALSE(infiniband.is_up);
  EXPECT_EQ(infiniband.speed, 0);
}

// Discovery would fail in containers that hide /sys.
TEST(Discovery, NeedsNoSysfs) {
  const FakeSysfs sysfs;
  const HostDescription host = discover_host(without_gpus(sysfs));
  ASSERT_GE(host.packages.size(), 1u);
  EXPECT_GE(host.packages[0].cores, 1);
  EXPECT_FALSE(host.packages[0].cpus.empty());
  EXPECT_TRUE(host.nics.empty());
}

// Links between sockets would get the bandwidth of another processor.
TEST(Discovery, TellsTheArchitecture) {
  const FakeSysfs sysfs;
  utsname system = {};
  ASSERT_EQ(uname(&system), 0);
  EXPECT_EQ(discover_host(without_gpus(sysfs)).cpu.architecture, system.machine);
}

TEST(Discovery, ReadsSocketsAndNumaDomainsFromHwloc) {
  const FakeSysfs sysfs;
  DiscoveryOptions options = without_gpus(sysfs);
  options.hwloc_synthetic = "package:2 numa:2 core:4 pu:2";
  const HostDescription host = discover_host(options);
  ASSERT_EQ(host.packages.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const PackageDescription& package = host.packages[static_cast<std::size_t>(i)];
    EXPECT_EQ(package.socket, i / 2);
    EXPECT_EQ(package.numa_node, i);
    EXPECT_EQ(package.cores, 4);
    EXPECT_EQ(package.cpus.size(), 8u);
    EXPECT_GT(package.memory, 0u);
  }
  // Links inside a socket have more bandwidth than links between sockets.
  const std::vector<int> ranks(4, 0);
  const Topology topology = merge(std::span(&host, 1), ranks, NodeKind::cpu);
  double inside = 0;
  double between = 0;
  for (const Link& link : topology.links()) {
    if (link.kind != LinkKind::socket) continue;
    const std::string& from = topology.nodes()[static_cast<std::size_t>(link.from)].name;
    const std::string& to = topology.nodes()[static_cast<std::size_t>(link.to)].name;
    if (from == "h0/package0" && to == "h0/package1") inside = link.bandwidth;
    if (from == "h0/package0" && to == "h0/package2") between = link.bandwidth;
  }
  EXPECT_GT(between, 0);
  EXPECT_GT(inside, between);
}

TEST(Discovery, TellsWhatHwlocRefuses) {
  const FakeSysfs sysfs;
  DiscoveryOptions options = without_gpus(sysfs);
  options.hwloc_synthetic = "socks:2";
  try {
    discover_host(options);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("'socks:2'"), std::string::npos) << error.what();
  }
}

TEST(Nvml, ReadsGpusAndNvlinks) {
  const FakeSysfs sysfs;
  // GPU 0 is behind a PCIe switch and listed in sysfs; the others are neither.
  sysfs.add_pci_device("pci0000:00/0000:00:01.0/0000:02:00.0/0000:03:01.0/0000:04:00.0", 0, "16.0 GT/s PCIe",
                       "8");
  const HostDescription host = with_gpus("mesh", FAKE_NVML, sysfs);
  EXPECT_TRUE(host.notes.empty()) << host.notes.front();
  ASSERT_EQ(host.gpus.size(), 3u);
  const std::vector<std::string> addresses = {"0000:04:00.0", "0000:05:00.0", "0001:06:00.0"};
  const std::vector<std::vector<int>> expected = {{0, 2, 1}, {2, 0, 3}, {1, 3, 0}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(host.gpus[i].pci.address, addresses[i]);
    EXPECT_EQ(host.gpus[i].model, "Fake V100");
    EXPECT_EQ(host.gpus[i].compute_capability, 70);
    EXPECT_EQ(host.gpus[i].memory, std::uint64_t{16} << 30);
    EXPECT_NEAR(host.gpus[i].pci.bandwidth, 15.75, 0.01);  // 8 lanes of generation 4, or 16 of generation 3
    for (std::size_t j = 0; j < 3; ++j) EXPECT_EQ(links_to_gpu(host.gpus[i], addresses[j]), expected[i][j]);
    EXPECT_EQ(links_to(host.gpus[i], NvlinkPeer::cpu), i == 0 ? 1 : 0);
  }
  EXPECT_EQ(host.gpus[0].pci.bridges,
            (std::vector<std::string>{"0000:00:01.0", "0000:02:00.0", "0000:03:01.0"}));
  EXPECT_EQ(host_description_from_json(to_json(host), "test"), host);
}

TEST(Nvml, CountsAllNvswitchesAsOnePeer) {
  const FakeSysfs sysfs;
  const HostDescription host = with_gpus("nvswitch", FAKE_NVML, sysfs);
  ASSERT_EQ(host.gpus.size(), 3u);
  for (const GpuDescription& gpu : host.gpus) {
    ASSERT_EQ(gpu.nvlinks.size(), 1u);
    EXPECT_EQ(gpu.nvlinks[0], (NvlinkDescription{NvlinkPeer::nvswitch, "", 18}));
  }
}

TEST(Nvml, TellsWhyThereAreNoGpus) {
  const FakeSysfs sysfs;
  const auto note_of = [&](const char* scenario, const char* library) {
    const HostDescription host = with_gpus(scenario, library, sysfs);
    EXPECT_TRUE(host.gpus.empty());
    EXPECT_EQ(host.notes.size(), 1u);
    return host.notes.empty() ? "" : host.notes[0];
  };
  EXPECT_NE(note_of("mesh", "libddl-no-such-library.so").find("libddl-no-such-library.so"),
            std::string::npos);
  EXPECT_NE(note_of("no_driver", FAKE_NVML).find("nvmlInit_v2 failed: Driver Not Loaded"), std::string::npos);
  EXPECT_NE(note_of("mesh", FAKE_NVML_WITHOUT_COUNT).find("no function nvmlDeviceGetCount_v2"),
            std::string::npos);
}

TEST(Nvml, LeavesOutALostGpuAlone) {
  const FakeSysfs sysfs;
  const HostDescription host = with_gpus("lost", FAKE_NVML, sysfs);
  ASSERT_EQ(host.gpus.size(), 2u);
  ASSERT_EQ(host.notes.size(), 1u);
  EXPECT_NE(host.notes[0].find("GPU 1"), std::string::npos);
  EXPECT_NE(host.notes[0].find("GPU is lost"), std::string::npos);
  EXPECT_EQ(links_to_gpu(host.gpus[0], "0001:06:00.0"), 1);
}

// Plans would be made for other GPUs than the ranks use.
TEST(Nvml, RanksAreOnTheGpusThatTheyName) {
  const FakeSysfs sysfs;
  const HostDescription host = with_gpus("mesh", FAKE_NVML, sysfs);
  ASSERT_EQ(host.gpus.size(), 3u);
  const auto devices_of = [](const Topology& topology) {
    std::vector<std::string> names;
    for (const int node : topology.devices())
      names.push_back(topology.nodes()[static_cast<std::size_t>(node)].name);
    return names;
  };
  const auto linked = [](const Topology& topology, const std::string& a, const std::string& b,
                         LinkKind kind) {
    return std::ranges::any_of(topology.links(), [&](const Link& link) {
      const auto name = [&](int node) { return topology.nodes()[static_cast<std::size_t>(node)].name; };
      return link.kind == kind &&
             ((name(link.from) == a && name(link.to) == b) || (name(link.from) == b && name(link.to) == a));
    });
  };
  const std::vector<int> two(2, 0);
  const std::vector<GpuDescription> last_first = {host.gpus[2], host.gpus[0]};
  const Topology apart = merge(std::span(&host, 1), two, NodeKind::gpu, last_first);
  EXPECT_EQ(devices_of(apart), (std::vector<std::string>{"h0/gpu1", "h0/gpu0"}));
  EXPECT_TRUE(linked(apart, "h0/gpu0", "h0/gpu1", LinkKind::nvlink));

  GpuDescription unknown;
  unknown.pci.address = "0002:00:00.0";
  const std::vector<int> four(4, 0);
  const std::vector<GpuDescription> shared = {host.gpus[0], host.gpus[1], host.gpus[0], unknown};
  const Topology together = merge(std::span(&host, 1), four, NodeKind::gpu, shared);
  EXPECT_EQ(devices_of(together), (std::vector<std::string>{"h0/gpu0.0", "h0/gpu1", "h0/gpu0.1", "h0/gpu2"}));
  EXPECT_TRUE(linked(together, "h0/gpu0", "h0/gpu0.1", LinkKind::memory));
  EXPECT_TRUE(linked(together, "h0/gpu0", "h0/gpu1", LinkKind::nvlink)) << "of the GPU that is shared";
  EXPECT_TRUE(linked(together, "h0/package0", "h0/gpu2", LinkKind::pcie)) << "told by the rank alone";
  EXPECT_THROW(merge(std::span(&host, 1), four, NodeKind::gpu, last_first), Error);
}

TEST(CpuList, IsReadAndWritten) {
  EXPECT_EQ(parse_cpu_list("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list(""), std::vector<int>());
  EXPECT_EQ(format_cpu_list(std::vector<int>{0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(format_cpu_list({}), "");
  for (const char* bad :
       {"a", "1-", "3-1", "1,", ",1", "1,,2", "2,1", "1,1", "0-4294967295", "-1", "1 2", "70000"}) {
    EXPECT_EQ(parse_cpu_list(bad), std::nullopt) << bad;
  }
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// A damaged description from a peer would become a wrong topology.
TEST(HostDescriptionJson, IsStrict) {
  HostDescription host;
  host.hostname = "node";
  host.packages = {{.socket = 0, .numa_node = 0, .cpus = {0, 1}, .cores = 2, .memory = 5}};
  host.nics = {
      {.name = "eth0", .pci = {.address = "0000:01:00.0", .bridges = {}}, .speed = 25, .is_up = true}};
  host.gpus = {{.pci = {.address = "0000:02:00.0", .bridges = {}},
                .model = "V",
                .compute_capability = 70,
                .nvlinks = {{NvlinkPeer::nvswitch, "", 6}}}};
  const std::string good = to_json(host);
  ASSERT_EQ(host_description_from_json(good, "f"), host);

  struct Case {
    std::string text;
    const char* expected;  // in the message
  };
  const Case cases[] = {
      {"", "f: byte 1: found parse error"},
      {good.substr(0, good.size() / 2), "expected one JSON object, whole"},
      {with(good, "\"hostname\": \"node\"", "\"hostname\": \"node\", \"hostname\": \"other\""),
       "f: top level: found key 'hostname' a second time"},
      {"[]", "f: top level: found a list, expected an object"},
      {with(good, "\"host_description\": 1", "\"host_description\": 2"), "host_description: found 2"},
      {with(good, "\"speed\"", "\"sped\""),
       "nics[0]: found unknown key 'sped', expected one of name, pci, speed"},
      {with(good, "\"hostname\": \"node\",", ""), "found no key 'hostname'"},
      {with(good, "\"hostname\": \"node\"", "\"hostname\": 7"),
       "hostname: found 7, expected a string that is not empty"},
      {with(good, "\"speed\": 25.0", "\"speed\": -1"), "nics[0].speed: found -1, expected a number from 0"},
      {with(good, "\"speed\": 25.0", "\"speed\": 1e999"), "expected one JSON object, whole"},
      {with(good, "\"cpus\": \"0-1\"", "\"cpus\": \"1-0\""), "packages[0].cpus: found '1-0'"},
      {with(good, "\"cores\": 2", "\"cores\": 0"),
       "packages[0].cores: found 0, expected a whole number from 1"},
      {with(good, "\"cores\": 2", "\"cores\": 18446744073709551615"),
       "packages[0].cores: found 18446744073709551615"},
      {with(good, "\"is_up\": true", "\"is_up\": 1"), "nics[0].is_up: found 1, expected true or false"},
      {with(good, "\"peer\": \"nvswitch\"", "\"peer\": \"switch\""),
       "gpus[0].nvlinks[0].peer: found 'switch'"},
      {with(good, "\"address\": \"0000:02:00.0\"", "\"address\": \"\""), "gpus[0].pci.address: found ''"},
      {with(good, "\"notes\": []", "\"notes\": [1]"), "notes[0]: found 1, expected a string"},
      {with(good, "\"memory\": 5", "\"memory\": -5"),
       "packages[0].memory: found -5, expected a whole number from 0"},
  };
  for (const Case& c : cases) {
    try {
      host_description_from_json(c.text, "f");
      ADD_FAILURE() << "accepted, expected " << c.expected;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
      EXPECT_NE(std::string(error.what()).find(c.expected), std::string::npos)
          << "found    " << error.what() << "\nexpected " << c.expected;
    }
  }
  HostDescription twice = host;
  twice.nics.push_back(twice.nics[0]);
  EXPECT_THROW(host_description_from_json(to_json(twice), "f"), Error);
}

}  // namespace
}  // namespace ddl::topology
