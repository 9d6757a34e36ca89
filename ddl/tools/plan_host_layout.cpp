#include "ddl/tools/plan_host_layout.hpp"

#include <algorithm>
#include <cmath>
#include <set>

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

std::size_t as_index(int i) { return static_cast<std::size_t>(i); }

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
    find_parents();
    std::ranges::stable_sort(devices, {}, [&](int device) { return ancestry(device); });
    left_out = devices.size() - std::min(devices.size(), HostLayout::most_devices);
    devices.resize(devices.size() - left_out);
  }

  [[nodiscard]] const Node& at(int node) const { return topology_.nodes()[as_index(node)]; }
  [[nodiscard]] std::vector<int> neighbours(int node) const {
    std::vector<int> result;
    for (const int link : topology_.links_at(node)) result.push_back(topology_.other_end(link, node));
    return result;
  }
  /// Nodes above one, the topmost first.
  [[nodiscard]] std::vector<int> ancestry(int node) const {
    std::vector<int> result;
    for (auto above = parents_.find(node); above != parents_.end(); above = parents_.find(above->second)) {
      result.insert(result.begin(), above->second);
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
    return std::ranges::any_of(topology_.links_at(node), [&](int link) {
      return topology_.links()[as_index(link)].kind == LinkKind::nvlink;
    });
  }

  /// Breadth first from the packages; NVLink only where nothing else leads.
  void find_parents() {
    for (const bool through_nvlink : {false, true}) {
      std::vector<int> queue = packages;
      std::set<int> seen(packages.begin(), packages.end());
      for (std::size_t i = 0; i < queue.size(); ++i) {
        const int node = queue[i];
        if (topology::is_device(at(node).kind) || at(node).kind == NodeKind::nic) continue;
        for (const int link : topology_.links_at(node)) {
          const int below = topology_.other_end(link, node);
          if (at(below).host != at(node).host || at(below).kind == NodeKind::package) continue;
          if (!through_nvlink && topology_.links()[as_index(link)].kind == LinkKind::nvlink) continue;
          if (!seen.insert(below).second) continue;
          parents_.try_emplace(below, node);
          queue.push_back(below);
        }
      }
    }
  }

  const Topology& topology_;
  std::map<int, int> parents_;
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// Places a row of nodes, each centred over `below(node)`, a list of middles.
template <typename Below>
void place_row(HostLayout& layout, const HostGraph& graph, std::vector<int> nodes, double y, Below&& below) {
  std::map<int, double> wanted;
  double otherwise = 0;
  for (const auto& [node, box] : layout.boxes) otherwise = std::max(otherwise, box.right());
  for (const int node : nodes) {
    const std::vector<double> middles = below(node);
    wanted[node] = middles.empty() ? otherwise + 40 : mean(middles);
  }
  std::ranges::stable_sort(nodes, {}, [&](int node) { return wanted[node]; });
  std::vector<double> middles;
  std::vector<double> widths;
  for (const int node : nodes) {
    const std::string& name = graph.at(node).name;
    const std::string_view label = std::string_view(name).substr(name.find('/') + 1);
    middles.push_back(wanted[node]);
    widths.push_back(std::clamp(text_width(label, {}) + 12, 46.0, 110.0));
  }
  const std::vector<double> left = spread(middles, widths, 12);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    layout.boxes[nodes[i]] = {left[i], y, widths[i], node_height};
  }
}

/// How far apart in columns the ends of the farthest link between devices are, if it is not 1.
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

std::vector<double> spread(const std::vector<double>& wanted, const std::vector<double>& widths, double gap) {
  std::vector<double> left;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    double x = wanted[i] - widths[i] / 2;
    if (i > 0) x = std::max(x, left.back() + widths[i - 1] + gap);
    left.push_back(x);
  }
  if (left.empty()) return left;
  double shift = 0;
  for (std::size_t i = 0; i < left.size(); ++i) shift += wanted[i] - widths[i] / 2 - left[i];
  for (double& x : left) x += shift / static_cast<double>(left.size());
  return left;
}

HostLayout lay_out_host(const Topology& topology, const std::vector<int>& nodes) {
  const HostGraph graph(topology, nodes);
  HostLayout layout;
  layout.devices_left_out = graph.left_out;
  // From the top to the bottom; the devices' columns decide where the others are.
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
  for (std::size_t i = 0; i < graph.device_switches.size(); ++i) {  // as wide as all devices, side by side
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
