#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ddl/topology/discovery.hpp"
#include "topology/graph/graph_builder.hpp"
#include "topology/graph/link_figures.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

double socket_bandwidth(const CpuDescription& cpu) {
  const bool is_power = cpu.architecture.starts_with("ppc64");
  const bool is_arm = cpu.architecture == "aarch64";
  return figures::nccl::socket_bandwidth(is_power ? "ppc64"
                                         : is_arm ? "arm64"
                                                  : cpu.architecture,
                                         cpu.vendor, cpu.family, cpu.model);
}

/// Names in topologies must be printable ASCII; names in systems need not be.
std::string printable(std::string_view name) {
  std::string result(name.substr(0, 200));
  std::ranges::replace_if(
      result, [](char c) { return c <= ' ' || c > '~'; }, '?');
  return result.empty() ? "?" : result;
}

/// The NICs that carry the job's bytes, each with the speed that is assumed for it.
std::vector<NicDescription> used_nics(const HostDescription& host, bool is_needed) {
  std::vector<NicDescription> nics = host.nics;
  std::erase_if(nics, [](const NicDescription& nic) { return !nic.is_up; });
  const bool has_hardware = !std::ranges::all_of(nics, &NicDescription::is_virtual);
  if (has_hardware) std::erase_if(nics, [](const NicDescription& nic) { return nic.is_virtual; });
  if (nics.empty() && is_needed) nics.push_back({.name = "nic0", .pci = {}});
  double fastest = 0;
  double slowest = std::numeric_limits<double>::infinity();
  for (const NicDescription& nic : nics) {
    if (nic.speed == 0) continue;
    fastest = std::max(fastest, nic.speed);
    slowest = std::min(slowest, nic.speed);
  }
  for (NicDescription& nic : nics) {
    if (nic.speed == 0) nic.speed = fastest > 0 ? slowest : figures::unknown_network_speed;
  }
  std::erase_if(nics, [&](const NicDescription& nic) { return 4 * nic.speed < fastest; });
  return nics;
}

/// The upstream ports of the PCIe switches above a device, the outermost first: of root port, upstream,
/// downstream, upstream, downstream these are the second and the fourth.
std::vector<std::string> switches_above(const PciPlace& pci) {
  std::vector<std::string> result;
  for (std::size_t i = 1; i + 1 < pci.bridges.size(); i += 2) result.push_back(pci.bridges[i]);
  return result;
}

class Merger {
 public:
  explicit Merger(NodeKind device) : device_(device) {}

  /// `ranks`: the host's ranks. `wanted`: the GPU of each; if empty, ranks take the GPUs in order. Devices
  /// are kept until `finish`, which puts them in the order of ranks.
  void add_host(const HostDescription& host, std::span<const int> ranks,
                std::span<const GpuDescription> wanted, bool has_peers) {
    host_ = graph_.add_host(fmt::format("h{}", hosts_.size()));
    hosts_.push_back(unique_hostname(host.hostname));
    if (host.packages.empty()) {
      refuse("merging host descriptions: host '{}': found no packages, expected at least one", host.hostname);
    }
    if (device_ == NodeKind::gpu && wanted.empty() && ranks.size() > host.gpus.size()) {
      refuse(
          "merging host descriptions: host '{}': found {} ranks and {} GPUs, expected at most one rank a GPU",
          host.hostname, ranks.size(), host.gpus.size());
    }
    add_packages(host);
    const std::vector<NicDescription> nics = used_nics(host, has_peers);
    const std::vector<UsedGpu> gpus =
        device_ == NodeKind::gpu ? used_gpus(host, ranks, wanted) : std::vector<UsedGpu>();
    add_switches(host, gpus, nics);
    for (const NicDescription& nic : nics) add_nic(host, nic);
    if (device_ == NodeKind::gpu) {
      add_gpus(host, gpus);
    } else {
      add_cpus(host, ranks);
    }
  }

  Topology finish(std::size_t ranks) {
    // Devices come after all other nodes, so their indices are known only now.
    const int first_device = static_cast<int>(graph_.nodes.size());
    graph_.nodes.resize(graph_.nodes.size() + ranks);
    for (auto& [rank, node] : devices_) graph_.nodes[as_index(first_device + rank)] = std::move(node);
    for (Link& link : device_links_) {
      for (int* const end : {&link.from, &link.to}) {
        if (*end < 0) *end = first_device + rank_of(*end);
      }
      graph_.links.push_back(link);
    }
    if (!nics_.empty()) {
      const int network = graph_.add_network("network");
      for (const auto& [nic, speed, latency] : nics_) {
        graph_.link(nic, network, LinkKind::network, speed / 8, latency);
      }
    }
    graph_.hosts = std::move(hosts_);
    return graph_.finish();
  }

 private:
  struct NicNode {
    int node;
    double speed;  // Gb/s
    double latency;
  };

  /// A GPU that has ranks.
  struct UsedGpu {
    GpuDescription gpu;
    std::vector<int> ranks;
  };

  std::string unique_hostname(const std::string& name) {
    std::string result = printable(name);
    for (int i = 2; !hostnames_.insert(result).second; ++i) result = fmt::format("{}-{}", printable(name), i);
    return result;
  }

  int add_node(const std::string& name, NodeKind kind) { return graph_.add_node(host_, name, kind); }
  /// Returns -1 - rank: devices get their node numbers in `finish`, after all other nodes.
  int add_device(int rank, const std::string& name) {
    devices_.emplace_back(rank, Node{graph_.hosts[as_index(host_)] + '/' + name, device_, host_});
    return -1 - rank;
  }
  static int rank_of(int device) { return -1 - device; }
  void link_device(int device, int to, LinkKind kind, double bandwidth, double latency,
                   Duplex duplex = Duplex::full) {
    device_links_.push_back({device, to, kind, bandwidth, latency, duplex});
  }

  /// The GPUs that have ranks, in the host's order; those that its description lacks come last.
  static std::vector<UsedGpu> used_gpus(const HostDescription& host, std::span<const int> ranks,
                                        std::span<const GpuDescription> wanted) {
    std::vector<UsedGpu> all;
    for (const GpuDescription& gpu : host.gpus) all.push_back({gpu, {}});
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      std::size_t index = i;
      if (!wanted.empty()) {
        const auto has_address = [&](const UsedGpu& used) {
          return used.gpu.pci.address == wanted[i].pci.address;
        };
        index = as_index(std::ranges::find_if(all, has_address) - all.begin());
        if (index == all.size()) all.push_back({wanted[i], {}});
      }
      all[index].ranks.push_back(ranks[i]);
    }
    std::erase_if(all, [](const UsedGpu& used) { return used.ranks.empty(); });
    return all;
  }

  void add_packages(const HostDescription& host) {
    packages_.clear();
    for (std::size_t i = 0; i < host.packages.size(); ++i) {
      packages_.push_back(add_node(fmt::format("package{}", i), NodeKind::package));
    }
    const double between_sockets = socket_bandwidth(host.cpu);
    for (std::size_t i = 0; i < packages_.size(); ++i) {
      for (std::size_t j = i + 1; j < packages_.size(); ++j) {
        const bool same_socket = host.packages[i].socket == host.packages[j].socket;
        graph_.link(
            packages_[i], packages_[j], LinkKind::socket,
            same_socket ? std::max(figures::inside_socket_bandwidth, between_sockets) : between_sockets,
            figures::socket_latency);
      }
    }
  }

  [[nodiscard]] int package_of(const HostDescription& host, const PciPlace& pci) const {
    for (std::size_t i = 0; i < host.packages.size(); ++i) {
      if (pci.numa_node >= 0 && host.packages[i].numa_node == pci.numa_node) return packages_[i];
    }
    return packages_.front();
  }

  static double pcie_bandwidth_of(const PciPlace& pci) {
    return pci.bandwidth > 0 ? pci.bandwidth : figures::pcie3_x16_bandwidth;
  }

  /// Adds the switches that join two or more nodes of the graph; any other switch is like a longer wire.
  void add_switches(const HostDescription& host, std::span<const UsedGpu> gpus,
                    std::span<const NicDescription> nics) {
    std::vector<const PciPlace*> places;
    for (const UsedGpu& used : gpus) places.push_back(&used.gpu.pci);
    for (const NicDescription& nic : nics) places.push_back(&nic.pci);
    std::map<std::string, std::set<std::string>> below;
    for (const PciPlace* place : places) {
      std::vector<std::string> chain = switches_above(*place);
      chain.push_back(place->address);
      for (std::size_t i = 0; i + 1 < chain.size(); ++i) below[chain[i]].insert(chain[i + 1]);
    }
    switches_.clear();
    for (const PciPlace* place : places) {
      int above = package_of(host, *place);
      for (const std::string& address : switches_above(*place)) {
        if (below[address].size() < 2) continue;
        const auto [entry, is_new] = switches_.try_emplace(address, 0);
        if (is_new) {
          entry->second = add_node(fmt::format("pcie{}", switches_.size() - 1), NodeKind::fabric);
          graph_.link(entry->second, above, LinkKind::pcie, pcie_bandwidth_of(*place), figures::pcie_latency);
        }
        above = entry->second;
      }
    }
  }

  /// The node that a PCI device is connected to.
  [[nodiscard]] int above(const HostDescription& host, const PciPlace& pci) const {
    int node = package_of(host, pci);
    for (const std::string& address : switches_above(pci)) {
      if (const auto found = switches_.find(address); found != switches_.end()) node = found->second;
    }
    return node;
  }

  void add_nic(const HostDescription& host, const NicDescription& nic) {
    const int node = add_node(printable(nic.name), NodeKind::nic);
    graph_.link(node, above(host, nic.pci), LinkKind::pcie, pcie_bandwidth_of(nic.pci),
                figures::pcie_latency);
    nics_.push_back(
        {node, nic.speed, nic.is_infiniband ? figures::network_latency : figures::tcp_network_latency});
  }

  void add_cpus(const HostDescription& host, std::span<const int> ranks) {
    std::vector<int> package_of_core;
    std::size_t cpus = 0;
    for (std::size_t i = 0; i < packages_.size(); ++i) {
      const int cores = std::max(1, host.packages[i].cores);
      package_of_core.insert(package_of_core.end(), as_index(cores), packages_[i]);
      cpus += host.packages[i].cpus.size();
    }
    // Ranks that take turns on a CPU share its bandwidth, and wait for one another.
    const double turns = std::max(
        1.0, static_cast<double>(ranks.size()) / static_cast<double>(std::max<std::size_t>(cpus, 1)));
    const double bandwidth = figures::memory_bandwidth / turns;
    const double latency = figures::memory_latency + (turns - 1) * figures::turn_latency;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const int package = package_of_core[i * package_of_core.size() / ranks.size()];
      link_device(add_device(ranks[i], fmt::format("cpu{}", i)), package, LinkKind::memory, bandwidth,
                  latency, Duplex::half);
    }
  }

  static double nvlink_bandwidth(const GpuDescription& gpu) {
    if (gpu.compute_capability >= 100) return figures::nvlink5_bandwidth;
    const bool is_pascal = gpu.compute_capability > 0 && gpu.compute_capability < 70;
    return is_pascal ? figures::nvlink1_bandwidth : figures::nvlink_bandwidth;
  }

  static int links_between(const GpuDescription& gpu, NvlinkPeer peer, const std::string& address) {
    int count = 0;
    for (const NvlinkDescription& link : gpu.nvlinks) {
      if (link.peer == peer && (peer != NvlinkPeer::gpu || link.address == address)) count += link.count;
    }
    return count;
  }

  /// The device of the GPU's only rank, or a node whose memory bandwidth its ranks' devices share.
  int add_gpu(const UsedGpu& used, const std::string& name) {
    if (used.ranks.size() == 1) return add_device(used.ranks.front(), name);
    const int node = add_node(name, NodeKind::fabric);
    const double each =
        figures::gpu_memory_bandwidth(used.gpu.compute_capability) / static_cast<double>(used.ranks.size());
    for (std::size_t i = 0; i < used.ranks.size(); ++i) {
      link_device(add_device(used.ranks[i], fmt::format("{}.{}", name, i)), node, LinkKind::memory, each,
                  figures::gpu_memory_latency, Duplex::half);
    }
    return node;
  }

  void add_gpus(const HostDescription& host, std::span<const UsedGpu> gpus) {
    std::optional<int> nvswitch;
    std::vector<int> ends;
    for (std::size_t i = 0; i < gpus.size(); ++i) ends.push_back(add_gpu(gpus[i], fmt::format("gpu{}", i)));
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      const GpuDescription& gpu = gpus[i].gpu;
      link_device(ends[i], above(host, gpu.pci), LinkKind::pcie, pcie_bandwidth_of(gpu.pci),
                  figures::pcie_latency);
      const double brick = nvlink_bandwidth(gpu);
      if (const int count = links_between(gpu, NvlinkPeer::cpu, {}); count > 0) {
        link_device(ends[i], package_of(host, gpu.pci), LinkKind::nvlink, count * brick,
                    figures::nvlink_to_package_latency);
      }
      if (const int count = links_between(gpu, NvlinkPeer::nvswitch, {}); count > 0) {
        if (!nvswitch) nvswitch = add_node("nvswitch", NodeKind::fabric);
        link_device(ends[i], *nvswitch, LinkKind::nvlink, count * brick, figures::nvlink_to_switch_latency);
      }
      for (std::size_t j = i + 1; j < gpus.size(); ++j) {
        // One end may have failed to report its links.
        const int count = std::max(links_between(gpu, NvlinkPeer::gpu, gpus[j].gpu.pci.address),
                                   links_between(gpus[j].gpu, NvlinkPeer::gpu, gpu.pci.address));
        if (count == 0) continue;
        link_device(ends[i], ends[j], LinkKind::nvlink,
                    count * std::min(brick, nvlink_bandwidth(gpus[j].gpu)), figures::nvlink_latency);
      }
    }
  }

  NodeKind device_;
  GraphBuilder graph_;  // hosts are named h0, h1, ... until `finish`
  int host_ = 0;        // the host being added
  std::vector<std::string> hosts_;
  std::set<std::string> hostnames_;
  std::vector<std::pair<int, Node>> devices_;  // with their ranks
  std::vector<Link> device_links_;             // added after all other links
  std::vector<NicNode> nics_;
  std::vector<int> packages_;            // of the host being added
  std::map<std::string, int> switches_;  // of the host being added, by address
};

}  // namespace

Topology merge(std::span<const HostDescription> hosts, std::span<const int> host_of_rank, NodeKind device,
               std::span<const GpuDescription> gpu_of_rank) {
  if (!gpu_of_rank.empty() && gpu_of_rank.size() != host_of_rank.size()) {
    refuse("merging host descriptions: found GPUs of {} ranks, expected {} or none", gpu_of_rank.size(),
           host_of_rank.size());
  }
  if (!is_device(device)) {
    refuse("merging host descriptions: found devices of kind {}, expected cpu or gpu", to_string(device));
  }
  if (host_of_rank.empty()) refuse("merging host descriptions: found no ranks, expected at least one");
  std::vector<std::vector<int>> ranks_of(hosts.size());
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const int host = host_of_rank[rank];
    if (host < 0 || as_index(host) >= hosts.size()) {
      refuse("merging host descriptions: found rank {} on host {}, expected one of 0 to {}", rank, host,
             static_cast<int>(hosts.size()) - 1);
    }
    ranks_of[as_index(host)].push_back(static_cast<int>(rank));
  }
  const auto hosts_with_ranks =
      std::ranges::count_if(ranks_of, [](const auto& ranks) { return !ranks.empty(); });
  Merger merger(device);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (ranks_of[i].empty()) continue;
    std::vector<GpuDescription> wanted;
    for (const int rank : ranks_of[i]) {
      if (!gpu_of_rank.empty()) wanted.push_back(gpu_of_rank[as_index(rank)]);
    }
    merger.add_host(hosts[i], ranks_of[i], wanted, hosts_with_ranks > 1);
  }
  return merger.finish(host_of_rank.size());
}

}  // namespace ddl::topology
