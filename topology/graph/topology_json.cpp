// Topologies as JSON. The reader is a SAX handler: memory follows what is accepted, not what is sent.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/hash.hpp"
#include "ddl/topology/topology.hpp"
#include "topology/json_text.hpp"

namespace ddl::topology {
namespace {

using json = nlohmann::json;
using nlohmann::ordered_json;

constexpr int format_version = 1;
constexpr std::string_view version_key = "ddl_topology";
constexpr std::string_view carriers_key = "carriers";

constexpr std::array node_kinds = {NodeKind::package, NodeKind::cpu, NodeKind::gpu,
                                   NodeKind::fabric,  NodeKind::nic, NodeKind::network};
constexpr std::array link_kinds = {LinkKind::memory, LinkKind::socket, LinkKind::pcie, LinkKind::nvlink,
                                   LinkKind::network};
constexpr std::array duplexes = {Duplex::full, Duplex::half};

/// A node or link as it stands in the file: names are resolved at the end, for keys may come in any order.
struct NodeRecord {
  std::string name;
  NodeKind kind = NodeKind::package;
  std::optional<std::string> host;
};
struct LinkRecord {
  std::string from;
  std::string to;
  Link link;
};

class Reader : public json::json_sax_t {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  Topology topology() {
    std::unordered_map<std::string_view, int> hosts;
    for (const std::string& host : hosts_) hosts.emplace(host, static_cast<int>(hosts.size()));
    std::vector<Node> nodes;
    std::unordered_map<std::string_view, int> by_name;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const NodeRecord& record = nodes_[i];
      by_name.emplace(record.name, static_cast<int>(i));
      int host = -1;
      if (record.host) {
        const auto found = hosts.find(*record.host);
        if (found == hosts.end()) {
          fail(fmt::format("nodes[{}].host", i), in_quotes(*record.host), "one of the names in hosts");
        }
        host = found->second;
      }
      nodes.push_back({record.name, record.kind, host});
    }
    std::vector<Link> links;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      Link link = links_[i].link;
      for (auto [key, name, end] :
           {std::tuple("from", &links_[i].from, &link.from), std::tuple("to", &links_[i].to, &link.to)}) {
        const auto found = by_name.find(*name);
        if (found == by_name.end()) {
          fail(fmt::format("links[{}].{}", i, key), in_quotes(*name), "the name of one of nodes");
        }
        *end = found->second;
      }
      links.push_back(link);
    }
    try {
      Topology result(std::move(hosts_), std::move(nodes), std::move(links));
      return carriers_ ? result.with_carriers(*carriers_) : result;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
      throw Error(ErrorCode::corrupt_data, fmt::format("{}: {}", source_, error.what()));
    }
  }

  bool null() override { refuse("null"); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool binary(binary_t&) override { refuse("bytes"); }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }

  bool string(string_t& value) override {
    if (level_ == Level::list && section_ == "hosts") {
      check_size(hosts_.size());
      hosts_.push_back(std::move(value));
    } else if (level_ == Level::record && section_ == "nodes") {
      node_text(std::move(value));
    } else if (level_ == Level::record && section_ == "links") {
      link_text(std::move(value));
    } else if (level_ == Level::root && section_ == carriers_key) {
      carriers_text(value);
    } else {
      refuse(in_quotes(value));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (level_ == Level::outside) {
      level_ = Level::root;
    } else if (level_ == Level::list && section_ == "nodes") {
      check_size(nodes_.size());
      nodes_.emplace_back();
      level_ = Level::record;
    } else if (level_ == Level::list && section_ == "links") {
      check_size(links_.size());
      links_.emplace_back();
      level_ = Level::record;
    } else {
      refuse("an object");
    }
    if (level_ == Level::record) record_keys_.clear();
    return true;
  }

  bool key(string_t& value) override {
    const bool is_root = level_ == Level::root;
    const auto known = is_root ? std::span(root_keys) : keys_of(section_);
    auto& seen = is_root ? root_keys_seen_ : record_keys_;
    const auto found = std::ranges::find(known, std::string_view(value));
    if (found == known.end()) {
      fail(record_path(), fmt::format("unknown key {}", in_quotes(value)),
           fmt::format("one of {}", fmt::join(known, ", ")));
    }
    if (std::ranges::find(seen, *found) != seen.end()) {
      fail(record_path(), fmt::format("key '{}' a second time", *found), "each key once");
    }
    seen.push_back(*found);
    (is_root ? section_ : key_) = *found;
    return true;
  }

  bool end_object() override {
    const bool is_root = level_ == Level::root;
    const auto& seen = is_root ? root_keys_seen_ : record_keys_;
    for (const std::string_view known : is_root ? std::span(root_keys) : keys_of(section_)) {
      const bool is_optional =
          known == "duplex" || known == carriers_key || known == "host";  // the graph says which fit
      if (!is_optional && std::ranges::find(seen, known) == seen.end()) {
        fail(record_path(), fmt::format("no key '{}'", known), "it to be there");
      }
    }
    level_ = is_root ? Level::outside : Level::list;
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::root || section_ == version_key || section_ == carriers_key) refuse("a list");
    level_ = Level::list;
    return true;
  }

  bool end_array() override {
    level_ = Level::root;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail(fmt::format("byte {}", position), json_problem(error), "one JSON object, whole");
  }

 private:
  enum class Level { outside, root, list, record };

  static constexpr std::array<std::string_view, 5> root_keys = {version_key, "hosts", "nodes", "links",
                                                                carriers_key};
  static constexpr std::array<std::string_view, 3> node_keys = {"name", "kind", "host"};
  static constexpr std::array<std::string_view, 6> link_keys = {"from",      "to",      "kind",
                                                                "bandwidth", "latency", "duplex"};
  static std::span<const std::string_view> keys_of(std::string_view section) {
    return section == "nodes" ? std::span<const std::string_view>(node_keys) : link_keys;
  }

  [[noreturn]] void fail(std::string_view path, std::string_view found, std::string_view expected) const {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{}: {}: found {}, expected {}", source_, path, found, expected));
  }

  [[nodiscard]] std::string record_path() const {
    if (level_ != Level::record) return "top level";
    return fmt::format("{}[{}]", section_, (section_ == "nodes" ? nodes_.size() : links_.size()) - 1);
  }

  /// Refuses a value that has no business where it stands.
  [[noreturn]] void refuse(std::string_view found) const {
    switch (level_) {
      case Level::outside:
        fail("top level", found, "an object");
      case Level::root:
        fail(section_, found,
             section_ == version_key    ? fmt::format("the number {}", format_version)
             : section_ == carriers_key ? "names of carriers"
                                        : "a list");
      case Level::list: {
        const auto size = section_ == "hosts"   ? hosts_.size()
                          : section_ == "nodes" ? nodes_.size()
                                                : links_.size();
        fail(fmt::format("{}[{}]", section_, size), found, section_ == "hosts" ? "a string" : "an object");
      }
      case Level::record:
        fail(fmt::format("{}.{}", record_path(), key_), found,
             key_ == "bandwidth" || key_ == "latency" ? "a number" : "a string");
    }
    throw Error(ErrorCode::internal, "topology_from_json: unknown level");
  }

  void check_size(std::size_t size) const {
    if (size >= Topology::most_nodes) {
      fail(section_, fmt::format("more than {} of them", size),
           fmt::format("at most {}", Topology::most_nodes));
    }
  }

  bool number(double value) {
    if (level_ == Level::root && section_ == version_key) {
      if (value != format_version) {
        fail(version_key, fmt::format("{}", value),
             fmt::format("{}, the version of the schema that this build reads", format_version));
      }
    } else if (level_ == Level::record && key_ == "bandwidth") {
      links_.back().link.bandwidth = value;
    } else if (level_ == Level::record && key_ == "latency") {
      links_.back().link.latency = value;
    } else {
      refuse(fmt::format("{}", value));
    }
    return true;
  }

  template <typename Enum, std::size_t n>
  void set(Enum& target, const std::array<Enum, n>& all, std::string_view text) const {
    const auto value = named(all, text);
    if (!value) fail(fmt::format("{}.{}", record_path(), key_), in_quotes(text), names(all));
    target = *value;
  }

  void node_text(std::string value) {
    NodeRecord& node = nodes_.back();
    if (key_ == "name") {
      node.name = std::move(value);
    } else if (key_ == "kind") {
      set(node.kind, node_kinds, value);
    } else {
      node.host = std::move(value);
    }
  }

  void carriers_text(std::string_view value) {
    try {
      carriers_ = device_carriers_from(value);
    } catch (const Error& error) {
      throw Error(ErrorCode::corrupt_data, fmt::format("{}: {}: {}", source_, carriers_key, error.what()));
    }
  }

  void link_text(std::string value) {
    LinkRecord& link = links_.back();
    if (key_ == "from") {
      link.from = std::move(value);
    } else if (key_ == "to") {
      link.to = std::move(value);
    } else if (key_ == "kind") {
      set(link.link.kind, link_kinds, value);
    } else if (key_ == "duplex") {
      set(link.link.duplex, duplexes, value);
    } else {
      refuse(in_quotes(value));
    }
  }

  std::string source_;
  Level level_ = Level::outside;
  std::string_view section_;
  std::string_view key_;
  std::vector<std::string_view> root_keys_seen_;
  std::vector<std::string_view> record_keys_;
  std::vector<std::string> hosts_;
  std::vector<NodeRecord> nodes_;
  std::vector<LinkRecord> links_;
  std::optional<DeviceCarriers> carriers_;
};

/// One line an element.
template <typename Range, typename ToJson>
void append_list(std::string& text, std::string_view key, const Range& range, ToJson element) {
  fmt::format_to(std::back_inserter(text), ",\n  \"{}\": [", key);
  std::string_view separator = "\n    ";
  for (const auto& item : range) {
    text += separator;
    text += element(item).dump();
    separator = ",\n    ";
  }
  text += "\n  ]";
}

}  // namespace

std::string to_json(const Topology& topology) {
  const auto& nodes = topology.nodes();
  const auto name = [&](int node) { return nodes[static_cast<std::size_t>(node)].name; };
  std::string text = fmt::format("{{\n  \"{}\": {}", version_key, format_version);
  if (topology.carriers()) {
    text += fmt::format(",\n  \"{}\": \"{}\"", carriers_key, to_string(*topology.carriers()));
  }
  append_list(text, "hosts", topology.hosts(), [](const std::string& host) { return ordered_json(host); });
  append_list(text, "nodes", nodes, [&](const Node& node) {
    ordered_json json = {{"name", node.name}, {"kind", to_string(node.kind)}};
    if (node.host >= 0) json["host"] = topology.hosts()[static_cast<std::size_t>(node.host)];
    return json;
  });
  append_list(text, "links", topology.links(), [&](const Link& link) {
    ordered_json json = {{"from", name(link.from)},
                         {"to", name(link.to)},
                         {"kind", to_string(link.kind)},
                         {"bandwidth", link.bandwidth},
                         {"latency", link.latency}};
    if (link.duplex != Duplex::full) json["duplex"] = to_string(link.duplex);
    return json;
  });
  text += "\n}\n";
  return text;
}

Topology topology_from_json(std::string_view text, std::string_view source) {
  Reader reader(source);
  json::sax_parse(text, &reader);  // false only after parse_error, which throws
  return reader.topology();
}

std::uint64_t Topology::hash() const {
  Fnv fnv;
  for (const char c : to_json(*this)) fnv.add(static_cast<std::uint8_t>(c));
  return fnv.value();
}

}  // namespace ddl::topology
