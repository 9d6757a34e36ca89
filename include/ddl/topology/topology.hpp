#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/as_index.hpp"
#include "ddl/topology/device_carriers.hpp"

namespace ddl::topology {

/// What a vertex of the graph is.
enum class NodeKind : std::uint8_t {
  package,  ///< A socket or NUMA domain with its memory.
  cpu,      ///< A place for a CPU rank: some cores of a package. A device.
  gpu,      ///< A device.
  fabric,   ///< A switch inside a host: NVSwitch, PCIe.
  nic,      ///< A network interface.
  network,  ///< A switch between hosts; belongs to no host.
};

/// What carries the bytes of a link.
enum class LinkKind : std::uint8_t {
  memory,  ///< A CPU rank to its package's memory.
  socket,  ///< Between packages: X-bus, UPI, Infinity Fabric.
  pcie,
  nvlink,
  network,
};

enum class Duplex : std::uint8_t {
  full,  ///< Each direction has the whole bandwidth.
  half,  ///< Both directions share it.
};

/// A device holds a rank (`cpu` or `gpu`).
constexpr bool is_device(NodeKind kind) noexcept { return kind == NodeKind::cpu || kind == NodeKind::gpu; }

struct Node {
  std::string name;  ///< Unique in the topology, e.g. "h0/gpu1".
  NodeKind kind = NodeKind::package;
  int host = -1;  ///< Index into hosts(); -1 for `network` nodes alone.

  friend bool operator==(const Node&, const Node&) = default;
};

struct Link {
  int from = 0;  ///< Index into nodes().
  int to = 0;
  LinkKind kind = LinkKind::pcie;
  double bandwidth = 0;  ///< GB/s (1e9 bytes) in one direction; all bricks of a bundle together.
  double latency = 0;    ///< us, one way.
  Duplex duplex = Duplex::full;

  friend bool operator==(const Link&, const Link&) = default;
};

/// One direction of a link: 2 * link for from -> to, 2 * link + 1 for to -> from.
using Channel = std::int32_t;
constexpr int link_of(Channel channel) noexcept { return channel / 2; }

/// Hosts, what is in them, and the links between: an undirected graph, in which cycles are fine. A
/// value; immutable, so any number of threads may read it.
///
/// Memory: the graph. Errors of construction are `invalid_argument` and name the node or link by its
/// place ("links[3].bandwidth"), what was found and what is expected.
class Topology {
 public:
  /// Most nodes, and most links, that a topology may have.
  static constexpr std::size_t most_nodes = 1'000'000;
  static constexpr std::size_t longest_name = 255;
  static constexpr double highest_bandwidth = 1e6;  ///< GB/s
  static constexpr double highest_latency = 1e6;    ///< us

  /// Checks: names of hosts and of nodes are unique, printable ASCII, 1 to 255 characters; `network` nodes
  /// have no host and all others have one; links join two existing, different nodes, at most one link of
  /// a kind a pair; bandwidth in (0, 1e6] GB/s and latency in [0, 1e6] us; there is at least one device;
  /// each device has a route to every other. The last is O(nodes + links) where all devices share a
  /// network or, on a single host, its packages; else O(devices * (nodes + links)), and an error where
  /// that product is above 1e8.
  Topology(std::vector<std::string> hosts, std::vector<Node> nodes, std::vector<Link> links);

  [[nodiscard]] const std::vector<std::string>& hosts() const noexcept { return hosts_; }
  [[nodiscard]] const std::vector<Node>& nodes() const noexcept { return nodes_; }
  [[nodiscard]] const std::vector<Link>& links() const noexcept { return links_; }
  [[nodiscard]] const Node& node(int index) const { return nodes_[as_index(index)]; }
  [[nodiscard]] const Link& link(int index) const { return links_[as_index(index)]; }
  /// Node indices of the devices in the order of nodes(): device d holds rank d unless a placement
  /// says otherwise.
  [[nodiscard]] const std::vector<int>& devices() const noexcept { return devices_; }
  [[nodiscard]] int node_of_device(int device) const { return devices_[as_index(device)]; }
  /// Links at a node, those to `network` nodes first, then by the host of the other end, then by index.
  [[nodiscard]] std::span<const int> links_at(int node) const;
  /// The other end of a link at `node`.
  [[nodiscard]] int other_end(int link, int node) const;

  /// The way bytes take between two nodes, as channels in order; empty if they are the same.
  ///
  /// What may lie between the ends: packages and fabrics of the two ends' hosts; network nodes; a NIC, but
  /// only on the way out of its host or into it, never between two nodes of its host. No other device,
  /// and nothing of a third host. A host is left at most once and entered at most once. Two nodes of a
  /// host use the network only where nothing inside the host joins them.
  ///
  /// Of all such ways: the least total latency (in whole picoseconds, so that sums compare exactly),
  /// then the widest, then the fewest links. Those that still tie are dealt out, so that devices share equal
  /// NICs and switches evenly: where k of them part, by lowest link index, the one numbered d mod k is
  /// taken; d is the number of the first device among its host's devices on the way out of its host, that
  /// of the last one on the way into its host, and the sum of both between (0 for what is no device). A route
  /// is thus the same on every machine; the way back may differ where ways tie.
  ///
  /// Throws `invalid_argument` for an index that is no node, or where there is no way (never between
  /// devices). O(m log m) with m the nodes and links of the two hosts and between `network` nodes: a few
  /// microseconds on the presets, whatever the number of hosts. Nothing is kept.
  [[nodiscard]] std::vector<Channel> route(int from_node, int to_node) const;

  /// What carries collectives between the devices, which are GPUs; none: not known. A job's own topology
  /// says it.
  [[nodiscard]] const std::optional<DeviceCarriers>& carriers() const noexcept { return carriers_; }
  [[nodiscard]] Topology with_carriers(const DeviceCarriers& carriers) const {
    Topology result = *this;
    result.carriers_ = carriers;
    return result;
  }

  /// 64 bits that differ where topologies differ, the same on every machine (FNV-1a of the JSON).
  [[nodiscard]] std::uint64_t hash() const;

  friend bool operator==(const Topology&, const Topology&) = default;

 private:
  std::vector<std::string> hosts_;
  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::optional<DeviceCarriers> carriers_;
  std::vector<int> devices_;
  std::vector<int> links_begin_;  // nodes + 1 positions in links_of_node_
  std::vector<int> links_of_node_;
  std::vector<int> host_sizes_;     // nodes of each host; of the network at the end
  std::vector<int> index_in_host_;  // of each node among its host's, or among the network's
  std::vector<int> device_number_;  // of each device among its host's; 0 for other nodes
};

std::string_view to_string(NodeKind kind) noexcept;
std::string_view to_string(LinkKind kind) noexcept;
std::string_view to_string(Duplex duplex) noexcept;

/// As text that `topology_from_json` reads back to an equal topology. The schema is in
/// topology/README.md.
std::string to_json(const Topology& topology);
/// Throws `corrupt_data` naming `source`, the path inside it ("nodes[2].kind"), what was found and what
/// was expected: not JSON, cut off, unknown, repeated or missing keys, wrong types, numbers that are not
/// finite, and everything that the constructor refuses. Reads at most `Topology::most_nodes` nodes.
Topology topology_from_json(std::string_view text, std::string_view source);
/// NCCL's topology XML (NCCL_TOPO_DUMP_FILE), one file per host; the hosts, named "h0", "h1" ..., are
/// joined by one network switch. What is read and the bandwidths are in topology/README.md. Throws
/// `corrupt_data` alike, and `invalid_argument` if there are not as many sources as texts, or none.
Topology topology_from_nccl_xml(std::span<const std::string> texts, std::span<const std::string> sources);

/// A machine that can be named: its devices and links.
struct Preset {
  std::string_view name;
  std::string_view description;
  int devices_per_host;  ///< 0: given by the argument.
};
std::span<const Preset> presets();
/// "NAME" (one host), "NAME:HOSTS" or, for `ethernet` and `host`, "ethernet:HOSTSxRANKS[@RATE]" (RATE as in
/// 1gbit, 100gbit; default 10gbit) and "host:RANKS". The figures are in topology/README.md. Throws
/// `invalid_argument` naming the presets, or what is wrong.
Topology make_preset(std::string_view text);

}  // namespace ddl::topology
