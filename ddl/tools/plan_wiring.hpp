#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::tools {

/// At most `most` groups of a dimension that exchange data, each as its ranks in the order of the grid; for a
/// broadcast or reduce the order starts at `root`. Leaves out members that only wait, behind a tree or off
/// the root's path. If the first dimension is ragged, later ones have a group for each list of segment
/// owners.
std::vector<std::vector<int>> groups_of(const topology::Plan& plan, int dimension, int root,
                                        std::size_t most);

/// The worst links of a dimension, e.g. "socket 32 GB/s": the farthest kind of link and the lowest bandwidth
/// on the routes between members of up to 16 of its groups.
std::string wires_of(const topology::Topology& topology, const topology::Placement& placement,
                     const topology::Plan& plan, int dimension, int root);

}  // namespace ddl::tools
