#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::tools {

/// The groups of a dimension that exchange data, each as its ranks in the order of the grid, in a broadcast
/// or reduce from `root` on; at most `most`. Members that only wait are left out: behind a tree, or off the
/// root's way. Where the first dimension is ragged, the later ones have a group for each list of owners of a
/// segment.
std::vector<std::vector<int>> groups_of(const topology::Plan& plan, int dimension, int root,
                                        std::size_t most);

/// Messages of all ranks in all chunks, which is what verifying and simulating cost. About as many where
/// pieces of a reduce_scatter or all_gather lie apart. No schedule is built.
double transfers_of(const topology::Plan& plan);

/// What the bytes of a dimension cross at worst, e.g. "socket 32 GB/s": the farthest kind of link, and the
/// narrowest bandwidth, on the ways between members of up to 16 of its groups.
std::string wires_of(const topology::Topology& topology, const topology::Placement& placement,
                     const topology::Plan& plan, int dimension, int root);

}  // namespace ddl::tools
