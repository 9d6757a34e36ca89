#include "ddl/topology/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "ddl/topology/device_carriers.hpp"
#include "topology/graph/reachability.hpp"
#include "topology/json_text.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"

namespace ddl::topology {

namespace {

[[noreturn]] void fail(std::string_view path, std::string_view found, std::string_view expected) {
  refuse("{}: found {}, expected {}", path, found, expected);
}

void check_text(const std::string& name, const std::string& path) {
  if (name.empty() || name.size() > Topology::longest_name) {
    fail(path, fmt::format("{} characters", name.size()),
         fmt::format("1 to {} characters", Topology::longest_name));
  }
  const auto odd = std::ranges::find_if_not(name, [](char c) { return c >= ' ' && c <= '~'; });
  if (odd != name.end()) {
    fail(path, fmt::format("byte 0x{:02x}", static_cast<unsigned char>(*odd)), "printable ASCII");
  }
}

void check_count(std::string_view path, std::size_t count) {
  if (count > Topology::most_nodes) {
    fail(path, count < 2 * Topology::most_nodes ? fmt::format("{} of them", count) : "far more",
         fmt::format("at most {}", Topology::most_nodes));
  }
}

/// The index at which each name was first seen.
using FirstOf = std::unordered_map<std::string_view, std::size_t>;

/// Checks that a name in the list `list` is printable and unique; `path` is where it stands.
void check_name(const std::string& name, std::string_view list, std::size_t index, const std::string& path,
                FirstOf& first) {
  check_text(name, path);
  const auto [entry, is_new] = first.try_emplace(name, index);
  if (!is_new) {
    fail(path, fmt::format("'{}' again", name), fmt::format("a name unlike {}[{}]", list, entry->second));
  }
}

void check_hosts(const std::vector<std::string>& hosts) {
  check_count("hosts", hosts.size());
  FirstOf first;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    check_name(hosts[i], "hosts", i, fmt::format("hosts[{}]", i), first);
  }
}

void check_nodes(const std::vector<Node>& nodes, std::size_t hosts) {
  check_count("nodes", nodes.size());
  FirstOf first;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    const auto path = [&](std::string_view key) { return fmt::format("nodes[{}].{}", i, key); };
    check_name(node.name, "nodes", i, path("name"), first);
    if (node.kind > NodeKind::network) {
      fail(path("kind"), fmt::format("{}", static_cast<int>(node.kind)), "a kind of node");
    }
    if (node.kind == NodeKind::network) {
      if (node.host != -1)
        fail(path("host"), fmt::format("host {}", node.host), "no host for a network node");
    } else if (node.host < 0 || as_index(node.host) >= hosts) {
      fail(path("host"), node.host == -1 ? "no host" : fmt::format("host {}", node.host),
           fmt::format("one of the {} hosts for a node of kind {}", hosts, to_string(node.kind)));
    }
  }
}

void check_number(const std::string& path, double value, bool zero_is_fine, double highest,
                  std::string_view unit) {
  const bool is_fine = (zero_is_fine ? value >= 0 : value > 0) && value <= highest;  // false for NaN
  if (!is_fine) {
    fail(path, fmt::format("{}", value),
         fmt::format("a number {} and at most {:.0f} ({})", zero_is_fine ? "from 0" : "above 0", highest,
                     unit));
  }
}

void check_links(const std::vector<Link>& links, const std::vector<Node>& nodes) {
  check_count("links", links.size());
  std::unordered_map<std::uint64_t, std::size_t> first;  // by both ends and the kind
  first.reserve(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    const Link& link = links[i];
    const auto path = [&](std::string_view key) { return fmt::format("links[{}].{}", i, key); };
    for (const auto& [key, end] : {std::pair("from", link.from), std::pair("to", link.to)}) {
      if (end < 0 || as_index(end) >= nodes.size()) {
        fail(path(key), fmt::format("node {}", end), fmt::format("one of the {} nodes", nodes.size()));
      }
    }
    const std::string& from = nodes[as_index(link.from)].name;
    const std::string& to = nodes[as_index(link.to)].name;
    if (link.from == link.to) fail(path("to"), fmt::format("'{}' at both ends", to), "two different nodes");
    if (link.kind > LinkKind::network) {
      fail(path("kind"), fmt::format("{}", static_cast<int>(link.kind)), "a kind of link");
    }
    if (link.duplex > Duplex::half) {
      fail(path("duplex"), fmt::format("{}", static_cast<int>(link.duplex)), "full or half");
    }
    check_number(path("bandwidth"), link.bandwidth, false, Topology::highest_bandwidth, "GB/s");
    check_number(path("latency"), link.latency, true, Topology::highest_latency, "us");
    const auto [low, high] = std::minmax(link.from, link.to);
    static_assert(Topology::most_nodes < 1U << 20U);
    const auto key = (static_cast<std::uint64_t>(low) << 40U) + (static_cast<std::uint64_t>(high) << 20U) +
                     static_cast<std::uint64_t>(link.kind);
    const auto [entry, is_new] = first.try_emplace(key, i);
    if (!is_new) {
      fail(fmt::format("links[{}]", i),
           fmt::format("a second {} link between '{}' and '{}'", to_string(link.kind), from, to),
           fmt::format("one link with the bandwidth of both, beside links[{}] none", entry->second));
    }
  }
}

}  // namespace

Topology::Topology(std::vector<std::string> hosts, std::vector<Node> nodes, std::vector<Link> links)
    : hosts_(std::move(hosts)), nodes_(std::move(nodes)), links_(std::move(links)) {
  check_hosts(hosts_);
  check_nodes(nodes_, hosts_.size());
  check_links(links_, nodes_);

  host_sizes_.assign(hosts_.size() + 1, 0);
  std::vector<int> devices_of_host(hosts_.size());
  index_in_host_.reserve(nodes_.size());
  device_number_.reserve(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const auto group = nodes_[i].host < 0 ? hosts_.size() : as_index(nodes_[i].host);
    index_in_host_.push_back(host_sizes_[group]++);
    device_number_.push_back(0);
    if (!is_device(nodes_[i].kind)) continue;
    devices_.push_back(static_cast<int>(i));
    device_number_.back() = devices_of_host[group]++;
  }
  if (devices_.empty()) fail("nodes", "no device", "at least one node of kind cpu or gpu");

  std::vector<std::tuple<int, int, int>> ends;  // a node, the host of the other end, the link
  for (int i = 0; i < static_cast<int>(links_.size()); ++i) {
    ends.emplace_back(link(i).from, node(link(i).to).host, i);
    ends.emplace_back(link(i).to, node(link(i).from).host, i);
  }
  std::ranges::sort(ends);
  links_begin_.assign(nodes_.size() + 1, 0);
  for (const auto& [end, other_host, link] : ends) {
    ++links_begin_[as_index(end) + 1];
    links_of_node_.push_back(link);
  }
  std::partial_sum(links_begin_.begin(), links_begin_.end(), links_begin_.begin());

  if (const auto problem = find_unreachable(*this))
    fail("links", *problem, "every device to reach every other");
}

std::span<const int> Topology::links_at(int node) const {
  const auto i = as_index(node);
  if (node < 0 || i >= nodes_.size()) {
    refuse("links_at: found node {}, expected 0 to {}", node, nodes_.size() - 1);
  }
  return std::span(links_of_node_)
      .subspan(as_index(links_begin_[i]), as_index(links_begin_[i + 1] - links_begin_[i]));
}

int Topology::other_end(int link, int node) const {
  const Link& ends = this->link(link);
  return ends.from == node ? ends.to : ends.from;
}

std::string_view to_string(NodeKind kind) noexcept {
  constexpr std::array<std::string_view, 6> names = {"package", "cpu", "gpu", "fabric", "nic", "network"};
  return name_in(names, kind);
}

std::string_view to_string(LinkKind kind) noexcept {
  constexpr std::array<std::string_view, 5> names = {"memory", "socket", "pcie", "nvlink", "network"};
  return name_in(names, kind);
}

std::string_view to_string(Duplex duplex) noexcept { return duplex == Duplex::full ? "full" : "half"; }

std::string to_string(const DeviceCarriers& carriers) {
  std::string text;
  const auto add = [&](bool is_there, const std::string& name) {
    if (is_there) text += (text.empty() ? "" : ",") + name;
  };
  add(carriers.exchange,
      carriers.one_shot_bytes == 0 ? "cuda_ipc" : fmt::format("cuda_ipc:{}", carriers.one_shot_bytes));
  add(carriers.nccl, "nccl");
  add(carriers.network, "network");
  add(carriers.host_memory, "host_memory");
  return text;
}

DeviceCarriers device_carriers_from(std::string_view text) {
  DeviceCarriers carriers;
  for (const std::string_view item : split(text, ',')) {
    const std::string_view name = item.substr(0, item.find(':'));
    bool* const known = name == "cuda_ipc"      ? &carriers.exchange
                        : name == "nccl"        ? &carriers.nccl
                        : name == "network"     ? &carriers.network
                        : name == "host_memory" ? &carriers.host_memory
                                                : nullptr;
    bool is_fine = known != nullptr && !*known;
    if (is_fine && name.size() < item.size()) {
      const auto bytes = parse_whole<decltype(carriers.one_shot_bytes)>(item.substr(name.size() + 1));
      is_fine = known == &carriers.exchange && bytes;
      carriers.one_shot_bytes = bytes.value_or(0);
    }
    if (!is_fine) {
      refuse(
          "found '{}', expected carriers between GPUs, each once, with commas between: "
          "cuda_ipc (with the most bytes of one_shot, as in cuda_ipc:262144), nccl, "
          "network, host_memory",
          text.substr(0, 60));
    }
    *known = true;
  }
  return carriers;
}

}  // namespace ddl::topology
