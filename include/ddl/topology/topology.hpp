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

/// What a node of the graph is.
enum class NodeKind : std::uint8_t {
  package,  ///< A socket or NUMA domain with its memory.
  cpu,      ///< The place of a CPU rank: some cores of a package. A device.
  gpu,      ///< A GPU. A device.
  fabric,   ///< A switch inside a host: NVSwitch, PCIe.
  nic,      ///< A network interface.
  network,  ///< A switch between hosts; belongs to no host.
};

/// What a link is.
enum class LinkKind : std::uint8_t {
  memory,   ///< From a CPU rank to its package's memory.
  socket,   ///< Between packages: X-bus, UPI, Infinity Fabric.
  pcie,     ///< PCI Express.
  nvlink,   ///< NVLink or NVLink-C2C.
  network,  ///< Between NICs and switches: Ethernet, InfiniBand.
};

/// Whether the two directions of a link share its bandwidth.
enum class Duplex : std::uint8_t {
  full,  ///< Each direction has the whole bandwidth.
  half,  ///< Both directions share the bandwidth.
};

/// Whether nodes of this kind are devices, each of which can hold a rank: `cpu` and `gpu`.
constexpr bool is_device(NodeKind kind) noexcept { return kind == NodeKind::cpu || kind == NodeKind::gpu; }

/// A node of the graph.
struct Node {
  std::string name;                   ///< Unique in the topology, e.g. "h0/gpu1".
  NodeKind kind = NodeKind::package;  ///< What it is.
  int host = -1;                      ///< Index into hosts(); -1 for `network` nodes only.

  /// Memberwise equality.
  friend bool operator==(const Node&, const Node&) = default;
};

/// An undirected link between two nodes; `from` and `to` only name its ends.
struct Link {
  int from = 0;                    ///< Index into nodes().
  int to = 0;                      ///< Index into nodes(); another node than `from`.
  LinkKind kind = LinkKind::pcie;  ///< What it is.
  double bandwidth = 0;            ///< GB/s (1e9 bytes) in one direction; the sum of a bundle's links.
  double latency = 0;              ///< us, one way.
  Duplex duplex = Duplex::full;    ///< Whether the directions share the bandwidth.

  /// Memberwise equality.
  friend bool operator==(const Link&, const Link&) = default;
};

/// One direction of a link: 2 * link for from -> to, 2 * link + 1 for to -> from, where `link` is an index
/// into links().
using Channel = std::int32_t;
/// The index of a channel's link.
constexpr int link_of(Channel channel) noexcept { return channel / 2; }

/// The hosts of a job, their nodes and the links between them: an undirected graph, which may have cycles.
/// Has no mutating functions, so any number of threads may read it. Functions that take the index of a node
/// or link do not check it unless they say so.
class Topology {
 public:
  /// Largest number of nodes, and of links.
  static constexpr std::size_t most_nodes = 1'000'000;
  static constexpr std::size_t longest_name = 255;  ///< Characters of a host's or node's name.
  static constexpr double highest_bandwidth = 1e6;  ///< GB/s.
  static constexpr double highest_latency = 1e6;    ///< us.

  /// Takes a graph and checks it: names of hosts and of nodes are unique printable ASCII of 1 to 255
  /// characters; `network` nodes have no host, all others have one; links join two existing, different nodes,
  /// with at most one link of a kind per pair; bandwidths are in (0, 1e6] GB/s and latencies in [0, 1e6] us;
  /// there is at least one device; each device has a route to every other. Throws `invalid_argument` that
  /// names the node or link by its place ("links[3].bandwidth"), what was found and what was expected.
  ///
  /// The check of routes is O(nodes + links) if all devices share a network or, on a single host, its
  /// packages; else O(devices * (nodes + links)), and an error if that product is above 1e8.
  Topology(std::vector<std::string> hosts, std::vector<Node> nodes, std::vector<Link> links);

  /// Names of the hosts.
  [[nodiscard]] const std::vector<std::string>& hosts() const noexcept { return hosts_; }
  /// The nodes, as given to the constructor.
  [[nodiscard]] const std::vector<Node>& nodes() const noexcept { return nodes_; }
  /// The links, as given to the constructor.
  [[nodiscard]] const std::vector<Link>& links() const noexcept { return links_; }
  /// A node by its index.
  [[nodiscard]] const Node& node(int index) const { return nodes_[as_index(index)]; }
  /// A link by its index.
  [[nodiscard]] const Link& link(int index) const { return links_[as_index(index)]; }
  /// Node indices of the devices, in the order of nodes(). Device d holds rank d unless a placement says
  /// otherwise.
  [[nodiscard]] const std::vector<int>& devices() const noexcept { return devices_; }
  /// The node index of a device, which is an index into devices().
  [[nodiscard]] int node_of_device(int device) const { return devices_[as_index(device)]; }
  /// Indices of the links at a node, those to `network` nodes first, then by the host of the other end, then
  /// by index. Throws `invalid_argument` for a node that does not exist.
  [[nodiscard]] std::span<const int> links_at(int node) const;
  /// The node at the other end of a link at `node`.
  [[nodiscard]] int other_end(int link, int node) const;

  /// The route that bytes take between two nodes, given by their indices: its channels in order; empty if the
  /// nodes are the same.
  ///
  /// A route may pass packages and fabrics of the two ends' hosts, network nodes, and NICs on the way out of
  /// or into their host, but not between two nodes of it. It passes no other device and nothing of a third
  /// host. It leaves a host at most once and enters a host at most once. Two nodes of a host use the network
  /// only if nothing inside the host joins them.
  ///
  /// Of all such routes, this is the one with the least total latency (in whole picoseconds, so that sums
  /// compare exactly), then with the greatest bandwidth, then with the fewest links. Ties are resolved so
  /// that devices share equal NICs and switches evenly: where k routes part, ordered by link index, number d
  /// mod k is taken. On the way out of a host, d is the first node's number among its host's devices; on the
  /// way into a host, that of the last node; in between, the sum of both (0 for a node that is no device). A
  /// route is thus the same on every machine; with ties, the route back may differ.
  ///
  /// Throws `invalid_argument` for a node that does not exist, and if there is no route (never between
  /// devices). O(m log m), with m the number of nodes and links of the two hosts and between `network` nodes:
  /// a few microseconds on the presets, whatever the number of hosts. Routes are not cached.
  [[nodiscard]] std::vector<Channel> route(int from_node, int to_node) const;

  /// What is available to carry collectives between the devices, which are GPUs; none: unknown. Set in a
  /// job's own topology (`DeviceCommunicator::topology`).
  [[nodiscard]] const std::optional<DeviceCarriers>& carriers() const noexcept { return carriers_; }
  /// A copy with these carriers.
  [[nodiscard]] Topology with_carriers(const DeviceCarriers& carriers) const {
    Topology result = *this;
    result.carriers_ = carriers;
    return result;
  }

  /// A 64-bit hash of everything (FNV-1a of the JSON text), the same on every machine. O(nodes + links).
  [[nodiscard]] std::uint64_t hash() const;

  /// Memberwise equality.
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

/// "package", "cpu", ...
std::string_view to_string(NodeKind kind) noexcept;
/// "memory", "socket", ...
std::string_view to_string(LinkKind kind) noexcept;
/// "full" or "half".
std::string_view to_string(Duplex duplex) noexcept;

/// JSON text that `topology_from_json` reads back to an equal topology. The schema is in topology/README.md.
std::string to_json(const Topology& topology);
/// Reads what `to_json` writes. `source`: what messages call the text. Throws `corrupt_data`, naming
/// `source`, the path inside it ("nodes[2].kind"), what was found and what was expected, for text that is not
/// JSON or is cut off, unknown, repeated or missing keys, wrong types, numbers that are not finite, and
/// everything that the constructor refuses. Reads at most `Topology::most_nodes` nodes.
Topology topology_from_json(std::string_view text, std::string_view source);
/// Reads NCCL's topology XML (NCCL_TOPO_DUMP_FILE), one text per host; `sources[i]` is what messages call
/// `texts[i]`. The hosts, named "h0", "h1" ..., are linked to one network switch. The elements that are read
/// and the bandwidths are in topology/README.md. Throws `corrupt_data` like `topology_from_json`, and
/// `invalid_argument` if the numbers of texts and sources differ, or are 0.
Topology topology_from_nccl_xml(std::span<const std::string> texts, std::span<const std::string> sources);

/// A kind of machine that `make_preset` knows.
struct Preset {
  std::string_view name;         ///< "dgx2", ...
  std::string_view description;  ///< One line for people.
  int devices_per_host;          ///< 0: part of `make_preset`'s text.
};
/// All presets.
std::span<const Preset> presets();
/// Makes the topology that a text names: "NAME" (one host) or "NAME:HOSTS"; for `ethernet` and `host`,
/// "ethernet:HOSTSxRANKS[@RATE]" (RATE as in 100mbit, 1gbit; default 10gbit) and "host:RANKS". The figures
/// are in topology/README.md. Throws `invalid_argument`, naming the presets or what is wrong.
Topology make_preset(std::string_view text);

}  // namespace ddl::topology
