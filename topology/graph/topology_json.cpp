// Topologies as JSON.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ddl/hash.hpp"
#include "ddl/topology/topology.hpp"
#include "topology/json_fields.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

constexpr int format_version = 1;
constexpr std::string_view version_key = "ddl_topology";
constexpr std::string_view carriers_key = "carriers";

/// A node or link as the file has it. Names are resolved after reading, because keys come in any order.
struct NodeRecord {
  std::string name;
  NodeKind kind = NodeKind::package;
  std::optional<std::string> host = {};
};
struct LinkRecord {
  std::string from;
  std::string to;
  LinkKind kind = LinkKind::pcie;
  double bandwidth = 0;
  double latency = 0;
  Duplex duplex = Duplex::full;
};
struct TopologyFile {
  std::optional<std::string> carriers;
  std::vector<std::string> hosts;
  std::vector<NodeRecord> nodes;
  std::vector<LinkRecord> links;
};

template <typename Fields, MaybeConst<NodeRecord> Record>
void describe(Fields& fields, Record& node) {
  fields("name", node.name);
  fields("kind", node.kind, all_to<NodeKind::network>);
  fields.optional("host", node.host, std::nullopt);  // the graph checks which nodes need one
}

template <typename Fields, MaybeConst<LinkRecord> Record>
void describe(Fields& fields, Record& link) {
  fields("from", link.from);
  fields("to", link.to);
  fields("kind", link.kind, all_to<LinkKind::network>);
  fields("bandwidth", link.bandwidth);
  fields("latency", link.latency);
  fields.optional("duplex", link.duplex, Duplex::full, all_to<Duplex::half>);
}

void describe(JsonFieldReader& fields, TopologyFile& file) {
  fields.version(version_key, format_version);
  fields("hosts", file.hosts, Topology::most_nodes);
  fields("nodes", file.nodes, Topology::most_nodes);
  fields("links", file.links, Topology::most_nodes);
  fields.optional(carriers_key, file.carriers, std::nullopt);
}

using Index = std::unordered_map<std::string_view, int>;

/// Throws `invalid_argument` if the name is unknown; `path()` is where it stands.
template <typename Path>
int index_of(const std::string& name, const Index& index, Path path, std::string_view expected) {
  const auto found = index.find(name);
  if (found != index.end()) return found->second;
  refuse("{}: found {}, expected {}", path(), in_quotes(name), expected);
}

Topology topology_of(const TopologyFile& file) {
  Index hosts;
  Index names;
  std::vector<Node> nodes;
  std::vector<Link> links;
  for (const std::string& host : file.hosts) hosts.emplace(host, static_cast<int>(hosts.size()));
  for (const NodeRecord& node : file.nodes) {
    const auto path = [&] { return fmt::format("nodes[{}].host", nodes.size()); };
    const int host = node.host ? index_of(*node.host, hosts, path, "one of the names in hosts") : -1;
    names.emplace(node.name, static_cast<int>(nodes.size()));
    nodes.push_back({node.name, node.kind, host});
  }
  for (const LinkRecord& link : file.links) {
    const auto end = [&](std::string_view key, const std::string& name) {
      const auto path = [&] { return fmt::format("links[{}].{}", links.size(), key); };
      return index_of(name, names, path, "the name of one of nodes");
    };
    links.push_back(
        {end("from", link.from), end("to", link.to), link.kind, link.bandwidth, link.latency, link.duplex});
  }
  return {file.hosts, std::move(nodes), std::move(links)};
}

/// Appends a list with one element per line.
template <typename Range, typename ToJson>
void append_list(std::string& text, std::string_view key, const Range& range, ToJson record_of) {
  fmt::format_to(std::back_inserter(text), ",\n  \"{}\": [", key);
  std::string_view separator = "\n    ";
  for (const auto& item : range) {
    text += separator;
    text += JsonFieldWriter::json(record_of(item)).dump();
    separator = ",\n    ";
  }
  text += "\n  ]";
}

}  // namespace

std::string to_json(const Topology& topology) {
  const auto& nodes = topology.nodes();
  const auto name = [&](int node) { return nodes[as_index(node)].name; };
  std::string text = fmt::format("{{\n  \"{}\": {}", version_key, format_version);
  if (topology.carriers()) {
    text += fmt::format(",\n  \"{}\": \"{}\"", carriers_key, to_string(*topology.carriers()));
  }
  append_list(text, "hosts", topology.hosts(), std::identity{});
  append_list(text, "nodes", nodes, [&](const Node& node) {
    NodeRecord record{node.name, node.kind};
    if (node.host >= 0) record.host = topology.hosts()[as_index(node.host)];
    return record;
  });
  append_list(text, "links", topology.links(), [&](const Link& link) {
    return LinkRecord{name(link.from), name(link.to), link.kind, link.bandwidth, link.latency, link.duplex};
  });
  text += "\n}\n";
  return text;
}

Topology topology_from_json(std::string_view text, std::string_view source) {
  TopologyFile file;
  read_json(text, source, JsonFieldReader::slot(file));
  Topology result = check_source(source, [&] { return topology_of(file); });
  if (!file.carriers) return result;
  return check_source(fmt::format("{}: {}", source, carriers_key),
                      [&] { return result.with_carriers(device_carriers_from(*file.carriers)); });
}

std::uint64_t Topology::hash() const {
  Fnv fnv;
  for (const char c : to_json(*this)) fnv.add(static_cast<std::uint8_t>(c));
  return fnv.value();
}

}  // namespace ddl::topology
