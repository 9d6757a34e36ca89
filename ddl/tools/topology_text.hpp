#pragma once

#include <string>
#include <string_view>

#include "ddl/topology/topology.hpp"

namespace ddl::tools {

/// A topology for people: each kind of host once as a tree of what hangs on what, the links beside that
/// tree, the network, and a matrix from device to device. Unless `whole_matrix`, a matrix of over 16 devices,
/// or 8 on several hosts, is cut to those of the first host and one of another.
std::string topology_text(const topology::Topology& topology, std::string_view title, bool whole_matrix);

/// A table of presets.
std::string presets_text();

}  // namespace ddl::tools
