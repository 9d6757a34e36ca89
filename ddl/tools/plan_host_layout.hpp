#pragma once

#include <map>
#include <vector>

#include "ddl/tools/plan_canvas.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::tools {

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

/// Left edges for boxes of these widths that are as near as they can be to centred at `wanted` (ascending),
/// with `gap` between them.
std::vector<double> spread(const std::vector<double>& wanted, const std::vector<double>& widths, double gap);

}  // namespace ddl::tools
