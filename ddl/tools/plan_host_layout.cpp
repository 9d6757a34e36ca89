#include "ddl/tools/plan_host_layout.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

namespace ddl::tools {
namespace {

using topology::Link;
using topology::LinkKind;
using topology::Node;
using topology::NodeKind;
using topology::Topology;

constexpr double padding = 18;
constexpr double header = 24;
constexpr double device_width = 58;
constexpr double device_height = 36;
constexpr double node_height = 24;
constexpr double row_gap = 46;
constexpr double arc_height = 9;  // for each column that an arc spans

class HostGraph {
 public:
  HostGraph(const Topology& topology, const std::vector<int>& nodes) : topology_(topology) {
    for (const int node : nodes) {
      const NodeKind kind = at(node).kind;
      if (kind == NodeKind::nic) nics.push_back(node);
      if (kind == NodeKind::package) packages.push_back(node);
      if (topology::is_device(kind)) devices.push_back(node);
      if (kind == NodeKind::fabric) (has_nvlink(node) ? device_switches : bus_switches).push_back(node);
    }
    parents_ = find_parents(topology, nodes);
    std::ranges::stable_sort(devices, {}, [&](int device) { return ancestry(device); });
    left_out = devices.size() - std::min(devices.size(), HostLayout::most_devices);
    devices.resize(devices.size() - left_out);
  }

  [[nodiscard]] const Node& at(int node) const { return topology_.node(node); }
  [[nodiscard]] std::vector<int> neighbours(int node) const {
    std::vector<int> result;
    for (const int link : topology_.links_at(node)) result.push_back(topology_.other_end(link, node));
    return result;
  }
  /// The nodes above `node`, the topmost first.
  [[nodiscard]] std::vector<int> ancestry(int node) const {
    std::vector<int> result;
    for (auto at = parents_.find(node); at != parents_.end(); at = parents_.find(at->second.node)) {
      result.insert(result.begin(), at->second.node);
    }
    return result;
  }
  [[nodiscard]] bool is_below(int node, int ancestor) const {
    const std::vector<int> above = ancestry(node);
    return std::ranges::find(above, ancestor) != above.end();
  }

  std::vector<int> nics, packages, bus_switches, devices, device_switches;
  std::size_t left_out = 0;

 private:
  [[nodiscard]] bool has_nvlink(int node) const {
    return std::ranges::any_of(topology_.links_at(node),
                               [&](int link) { return topology_.link(link).kind == LinkKind::nvlink; });
  }

  const Topology& topology_;
  std::map<int, Above> parents_;
};

/// Places a row of nodes, each centred over the mean of `below(node)`, a list of x coordinates.
template <typename Below>
void place_row(HostLayout& layout, const HostGraph& graph, const std::vector<int>& nodes, double y,
               Below&& below) {
  double right = 0;
  for (const auto& [node, box] : layout.boxes) right = std::max(right, box.right());
  std::vector<RowNode> row;
  for (const int node : nodes) {
    const double width = std::clamp(text_width(short_name(graph.at(node)), {}) + 12, 46.0, 110.0);
    row.push_back({node, mean(below(node), right + 40), width});
  }
  place_row(layout.boxes, std::move(row), y, node_height, 12);
}

/// The largest distance in columns between linked devices; 0 if links only join neighbours.
double longest_arc(const HostGraph& graph) {
  double longest = 0;
  for (std::size_t i = 0; i < graph.devices.size(); ++i) {
    for (const int other : graph.neighbours(graph.devices[i])) {
      const auto found = std::ranges::find(graph.devices, other);
      if (found == graph.devices.end()) continue;
      const auto distance =
          std::abs(static_cast<double>(found - graph.devices.begin()) - static_cast<double>(i));
      if (distance > 1) longest = std::max(longest, distance);
    }
  }
  return longest;
}

}  // namespace

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

std::string_view short_name(const Node& node) {
  return std::string_view(node.name).substr(node.name.find('/') + 1);
}

double mean(const std::vector<double>& values, double otherwise) {
  if (values.empty()) return otherwise;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void place_row(std::map<int, Box>& boxes, std::vector<RowNode> row, double y, double height, double gap,
               double least_x) {
  std::ranges::stable_sort(row, {}, &RowNode::wanted);
  // Places nodes from left to right without overlaps, then moves all of them left by their mean displacement.
  std::vector<double> too_far;
  double x = -std::numeric_limits<double>::infinity();
  for (const RowNode& node : row) {
    const double wanted = node.wanted - node.width / 2;
    x = std::max(x, wanted);
    too_far.push_back(wanted - x);
    boxes[node.node] = {x, y, node.width, height};
    x += node.width + gap;
  }
  const double shift = mean(too_far, 0);
  for (const RowNode& node : row) boxes[node.node].x = std::max(least_x, boxes[node.node].x + shift);
}

HostLayout lay_out_host(const Topology& topology, const std::vector<int>& nodes) {
  const HostGraph graph(topology, nodes);
  HostLayout layout;
  layout.devices_left_out = graph.left_out;
  // Rows go from top to bottom; the devices' columns determine the places of the other nodes.
  double y = header;
  const auto row = [&](bool is_there, double height) {
    const double top = y;
    if (is_there) y += height + row_gap;
    return top;
  };
  const double nics_y = row(!graph.nics.empty(), node_height);
  const double packages_y = row(!graph.packages.empty(), node_height);
  const double bus_y = row(!graph.bus_switches.empty(), node_height);
  const double devices_y = row(true, device_height);
  y -= row_gap;
  const double arcs = longest_arc(graph);
  if (arcs > 0) y += 10 + arc_height * arcs;
  const double switches_y = y + 30;
  if (!graph.device_switches.empty()) y = switches_y + node_height;

  const double pitch = device_width + (graph.devices.size() > 8 ? 14 : 32);
  for (std::size_t i = 0; i < graph.devices.size(); ++i) {
    layout.boxes[graph.devices[i]] = {static_cast<double>(i) * pitch, devices_y, device_width, device_height};
  }
  const auto middles_below = [&](int node) {
    std::vector<double> middles;
    for (const int device : graph.devices) {
      if (graph.is_below(device, node)) middles.push_back(layout.boxes[device].middle());
    }
    return middles;
  };
  const auto middles_of_neighbours = [&](int node) {
    std::vector<double> middles;
    for (const int other : graph.neighbours(node)) {
      if (layout.boxes.contains(other)) middles.push_back(layout.boxes[other].middle());
    }
    return middles;
  };
  place_row(layout, graph, graph.bus_switches, bus_y, middles_below);
  place_row(layout, graph, graph.packages, packages_y, middles_below);
  place_row(layout, graph, graph.nics, nics_y, middles_of_neighbours);
  // The devices' switches stand side by side and together span all devices.
  for (std::size_t i = 0; i < graph.device_switches.size(); ++i) {
    const double all = static_cast<double>(graph.devices.size()) * pitch - pitch + device_width;
    const double share = all / static_cast<double>(graph.device_switches.size());
    layout.boxes[graph.device_switches[i]] = {static_cast<double>(i) * share, switches_y,
                                              std::max(60.0, share - 10), node_height};
  }

  double left = 0;
  double right = 0;
  for (const auto& [node, box] : layout.boxes) {
    left = std::min(left, box.x);
    right = std::max(right, box.right());
  }
  for (auto& [node, box] : layout.boxes) box.x += padding - left;
  layout.width = std::max(right - left, 90.0) + 2 * padding;
  layout.height = y + 14 + (graph.left_out > 0 ? 16 : 0);
  return layout;
}

}  // namespace ddl::tools
