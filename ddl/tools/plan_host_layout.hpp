#pragma once

#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "ddl/tools/plan_canvas.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::tools {

/// What a node hangs on: the node above it, and the link there.
struct Above {
  int node;
  int link;
};
/// Of the nodes of a host, breadth first from the packages through what can have something below it. NVLinks
/// count only for what nothing else leads to.
std::map<int, Above> find_parents(const topology::Topology& topology, const std::vector<int>& nodes);

/// Without the host.
std::string_view short_name(const topology::Node& node);

/// Where the nodes of one host are drawn, from (0, 0): NICs, packages, PCIe switches, devices and switches of
/// the devices below one another, each centred over what hangs on it.
struct HostLayout {
  static constexpr std::size_t most_devices = 16;

  double width = 0;
  double height = 0;
  std::map<int, Box> boxes;  ///< Of nodes that are drawn.
  std::size_t devices_left_out = 0;
};

/// `nodes` are those of a host.
HostLayout lay_out_host(const topology::Topology& topology, const std::vector<int>& nodes);

/// A node of a row of boxes, and where its middle should be.
struct RowNode {
  int node;
  double wanted;
  double width;
};
/// Places nodes in a row, each as near as it can be to where it should be, but not left of `least_x`.
void place_row(std::map<int, Box>& boxes, std::vector<RowNode> row, double y, double height, double gap,
               double least_x = -std::numeric_limits<double>::infinity());

/// Of no values: `otherwise`.
double mean(const std::vector<double>& values, double otherwise);

}  // namespace ddl::tools
