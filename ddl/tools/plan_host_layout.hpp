#pragma once

#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "ddl/tools/plan_canvas.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::tools {

/// The parent of a node in the tree of a host, and the link to it.
struct Above {
  int node;
  int link;
};
/// The parents of a host's nodes, found breadth first from the packages; devices and NICs have no children.
/// NVLinks are used only for nodes that no other links reach.
std::map<int, Above> find_parents(const topology::Topology& topology, const std::vector<int>& nodes);

/// The node's name without that of its host.
std::string_view short_name(const topology::Node& node);

/// The places of one host's nodes in a drawing, relative to (0, 0). Rows from top to bottom: NICs, packages,
/// PCIe switches, devices, switches of the devices; nodes are centred over their children.
struct HostLayout {
  static constexpr std::size_t most_devices = 16;

  double width = 0;
  double height = 0;
  std::map<int, Box> boxes;  ///< By node; only drawn nodes.
  std::size_t devices_left_out = 0;
};

/// `nodes`: the nodes of one host.
HostLayout lay_out_host(const topology::Topology& topology, const std::vector<int>& nodes);

/// A node of a row of boxes, with the x coordinate at which its middle should be.
struct RowNode {
  int node;
  double wanted;
  double width;
};
/// Places nodes in a row without overlaps, near their wanted places, but not left of `least_x`.
void place_row(std::map<int, Box>& boxes, std::vector<RowNode> row, double y, double height, double gap,
               double least_x = -std::numeric_limits<double>::infinity());

/// The mean of `values`; `otherwise` if there are none.
double mean(const std::vector<double>& values, double otherwise);

}  // namespace ddl::tools
