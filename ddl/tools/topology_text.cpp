#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <ranges>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "ddl/tools/topo_commands.hpp"
#include "topology/discovery/sysfs.hpp"
#include "topology/text.hpp"

namespace ddl::tools {
namespace {

using topology::Link;
using topology::LinkKind;
using topology::Node;
using topology::NodeKind;
using topology::Topology;

constexpr std::size_t most_levels = 20;
constexpr std::size_t most_columns = 16;
constexpr std::size_t most_columns_of_several_hosts = 8;

std::string link_text(const Link& link) {
  return fmt::format("{:<8} {:>7.4g} GB/s {:>6.4g} us{}", to_string(link.kind), link.bandwidth, link.latency,
                     link.duplex == topology::Duplex::half ? ", half duplex" : "");
}

/// The node's name without that of its host.
std::string_view short_name(const Node& node) {
  return std::string_view(node.name).substr(node.name.find('/') + 1);
}

/// The parent of a node in the tree of a host, and the link to it.
struct Above {
  int node;
  int link;
};

/// The parents of a host's nodes, found breadth first from the packages; devices and NICs have no children.
/// NVLinks are used only for nodes that no other links reach.
std::map<int, Above> find_parents(const Topology& topology, const std::vector<int>& nodes) {
  std::map<int, Above> parents;
  std::vector<int> packages = nodes;
  std::erase_if(packages, [&](int node) { return topology.node(node).kind != NodeKind::package; });
  for (const bool through_nvlink : {false, true}) {
    std::vector<int> queue = packages;
    std::set<int> seen(packages.begin(), packages.end());
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const int node = queue[i];
      const Node& above = topology.node(node);
      if (topology::is_device(above.kind) || above.kind == NodeKind::nic) continue;
      for (const int link : topology.links_at(node)) {
        const int below = topology.other_end(link, node);
        if (topology.node(below).host != above.host) continue;
        if (topology.link(link).kind == LinkKind::nvlink && !through_nvlink) continue;
        if (!seen.insert(below).second) continue;
        parents.try_emplace(below, node, link);
        queue.push_back(below);
      }
    }
  }
  return parents;
}

class HostView {
 public:
  HostView(const Topology& topology, int host, std::vector<int> nodes)
      : topology_(topology), host_(host), nodes_(std::move(nodes)) {}

  /// Equal for hosts that differ only in their names.
  [[nodiscard]] std::string signature() const {
    std::string text;
    for (const int node : nodes_) {
      text += fmt::format("{} {}\n", short_name(at(node)), static_cast<int>(at(node).kind));
      for (const int index : topology_.links_at(node)) {
        const Link& link = topology_.link(index);
        if (link.from != node) continue;
        text += fmt::format(" {} {} {} {} {}\n", short_name(at(link.to)), static_cast<int>(link.kind),
                            link.bandwidth, link.latency, static_cast<int>(link.duplex));
      }
    }
    return text;
  }

  /// A line for each node, indented below its parent; then the links outside the tree.
  [[nodiscard]] std::string tree() {
    parents_ = find_parents(topology_, nodes_);
    std::string text = branches();
    std::string others;
    for (const int node : nodes_) {
      for (const int index : topology_.links_at(node)) {
        const Link& link = topology_.link(index);
        if (link.from != node || at(link.to).host != host_ || is_in_tree(index)) continue;
        others += fmt::format("    {:<{}} {}\n", fmt::format("{} - {}", at(link.from).name, at(link.to).name),
                              2 * width_ + 3, link_text(link));
      }
    }
    if (!others.empty()) text += "  further links\n" + others;
    return text;
  }

 private:
  [[nodiscard]] const Node& at(int node) const { return topology_.node(node); }

  [[nodiscard]] bool is_in_tree(int link) const {
    const Link& edge = topology_.link(link);
    return std::ranges::any_of(std::array{edge.from, edge.to}, [&](int node) {
      const auto found = parents_.find(node);
      return found != parents_.end() && found->second.link == link;
    });
  }

  /// Iterative, because a file may contain a chain of a million switches.
  std::string branches() {
    std::map<int, std::vector<int>> below;
    std::vector<std::pair<int, std::size_t>> pending;  // a stack of nodes with their levels
    for (const int node : nodes_ | std::views::reverse) {
      if (const auto parent = parents_.find(node); parent != parents_.end()) {
        below[parent->second.node].push_back(node);
      } else {
        pending.emplace_back(node, 1);
      }
    }
    std::vector<std::pair<int, std::string>> lines;  // nodes with their indented names
    std::size_t column = 0;
    while (!pending.empty()) {
      const auto [node, level] = pending.back();
      pending.pop_back();
      lines.emplace_back(node, std::string(2 * level, ' ') + at(node).name);
      column = std::max(column, lines.back().second.size());
      width_ = std::max(width_, at(node).name.size());
      for (const int child : below[node]) pending.emplace_back(child, std::min(level + 1, most_levels));
    }
    std::string text;
    for (const auto& [node, name] : lines) {
      std::string line = fmt::format("{:<{}}  {:<8}", name, column, to_string(at(node).kind));
      if (const auto parent = parents_.find(node); parent != parents_.end()) {
        line += ' ' + link_text(topology_.link(parent->second.link));
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + '\n';
    }
    return text;
  }

  const Topology& topology_;
  int host_;
  std::vector<int> nodes_;
  std::map<int, Above> parents_;
  std::size_t width_ = 0;  // length of the longest name
};

std::string network_text(const Topology& topology) {
  std::string text;
  std::vector<int> inner;
  for (std::size_t i = 0; i < topology.nodes().size(); ++i) {
    if (topology.nodes()[i].kind != NodeKind::network) continue;
    std::map<std::string, std::size_t> nic_links;
    for (const int index : topology.links_at(static_cast<int>(i))) {
      const Link& link = topology.link(index);
      const int other = link.from == static_cast<int>(i) ? link.to : link.from;
      if (topology.node(other).kind != NodeKind::network) {
        ++nic_links[link_text(link)];
      } else if (link.from == static_cast<int>(i)) {
        inner.push_back(index);
      }
    }
    text += fmt::format("  {}\n", topology.nodes()[i].name);
    for (const auto& [link, number] : nic_links)
      text += fmt::format("    {:<12} {}\n", count_text(number, "NIC"), link);
  }
  for (const int index : inner) {
    const Link& link = topology.link(index);
    text += fmt::format("  {} - {}  {}\n", topology.node(link.from).name, topology.node(link.to).name,
                        link_text(link));
  }
  return text.empty() ? text : "\nnetwork\n" + text;
}

/// The worst kind of link on a route, and the bandwidth of its narrowest link.
std::string cell(const Topology& topology, int from, int to) {
  if (from == to) return "X";
  constexpr std::array order = {LinkKind::nvlink, LinkKind::memory, LinkKind::pcie, LinkKind::socket,
                                LinkKind::network};
  constexpr std::array<std::string_view, 5> names = {"NVL", "MEM", "PCI", "SOC", "NET"};
  std::size_t worst = 0;
  double bandwidth = 0;
  for (const topology::Channel channel : topology.route(from, to)) {
    const Link& link = topology.link(topology::link_of(channel));
    worst = std::max(worst, as_index(std::ranges::find(order, link.kind) - order.begin()));
    bandwidth = bandwidth == 0 ? link.bandwidth : std::min(bandwidth, link.bandwidth);
  }
  return fmt::format("{} {:.3g}", names[worst], bandwidth);
}

std::vector<int> matrix_devices(const Topology& topology, bool whole) {
  const std::vector<int>& devices = topology.devices();
  const bool one_host = topology.hosts().size() == 1;
  if (whole || devices.size() <= (one_host ? most_columns : most_columns_of_several_hosts)) return devices;
  const int first_host = topology.node(devices.front()).host;
  std::vector<int> result;
  for (const int device : devices) {
    if (result.size() < most_columns && topology.node(device).host == first_host) result.push_back(device);
  }
  for (const int device : devices) {
    if (topology.node(device).host == first_host) continue;
    result.push_back(device);
    break;
  }
  return result;
}

std::string matrix_text(const Topology& topology, bool whole) {
  const std::vector<int> devices = matrix_devices(topology, whole);
  std::vector<std::string> header{""};
  for (const int device : devices) header.push_back(topology.node(device).name);
  TextTable table(header);
  for (const int from : devices) {
    std::vector<std::string> row{topology.node(from).name};
    for (const int to : devices) row.push_back(cell(topology, from, to));
    table.add(std::move(row));
  }
  std::string text = "\nmatrix";
  if (devices.size() < topology.devices().size()) {
    text +=
        fmt::format(" of {} of the {} devices (--matrix: of all)", devices.size(), topology.devices().size());
  }
  return text + '\n' + table.text() +
         "  Each cell: what the way crosses, and GB/s of its narrowest link. NVL NVLink alone, MEM one "
         "package's\n"
         "  memory, PCI PCIe inside a package, SOC from package to package, NET the network.\n";
}

}  // namespace

std::string topology_text(const Topology& topology, std::string_view title, bool whole_matrix) {
  std::string text =
      fmt::format("{}: {}, {}, {}, hash {:016x}\n", title, count_text(topology.hosts().size(), "host"),
                  count_text(topology.devices().size(), "device"),
                  count_text(topology.links().size(), "link"), topology.hash());

  std::vector<std::vector<int>> nodes_of(topology.hosts().size());
  for (std::size_t i = 0; i < topology.nodes().size(); ++i) {
    if (const int host = topology.nodes()[i].host; host >= 0)
      nodes_of[as_index(host)].push_back(static_cast<int>(i));
  }
  std::map<std::string, std::vector<int>> alike;
  std::vector<const std::vector<int>*> groups;
  for (std::size_t host = 0; host < nodes_of.size(); ++host) {
    const HostView view(topology, static_cast<int>(host), nodes_of[host]);
    std::vector<int>& group = alike[view.signature()];
    if (group.empty()) groups.push_back(&group);
    group.push_back(static_cast<int>(host));
  }
  for (const std::vector<int>* group : groups) {
    const int host = group->front();
    text += fmt::format("\nhost {} '{}'", host, topology.hosts()[as_index(host)]);
    if (group->size() > 1) {
      text += fmt::format(" (alike: {} {})", group->size() > 2 ? "hosts" : "host",
                          topology::format_cpu_list(std::span(*group).subspan(1)));
    }
    text += '\n' + HostView(topology, host, nodes_of[as_index(host)]).tree();
  }
  return text + network_text(topology) + matrix_text(topology, whole_matrix);
}

std::string presets_text() {
  std::string text = fmt::format("{:<12} {:>12}  {}\n", "NAME", "DEVICES/HOST", "DESCRIPTION");
  for (const topology::Preset& preset : topology::presets()) {
    const std::string devices =
        preset.devices_per_host > 0 ? std::to_string(preset.devices_per_host) : "as given";
    text += fmt::format("{:<12} {:>12}  {}\n", preset.name, devices, preset.description);
  }
  return text;
}

}  // namespace ddl::tools
