#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::tools {

/// The groups of a dimension that exchange data, each as its ranks in the order of the grid; at most `most`.
/// Members that only wait there, behind a tree or off the root's way in a broadcast from or reduce to `root`,
/// are left out. Where the first dimension is ragged, the later ones have a group for each list of owners of
/// a segment.
std::vector<std::vector<int>> groups_of(const topology::Plan& plan, int dimension, int root,
                                        std::size_t most);

/// Messages of all ranks in all chunks, which is what verifying and simulating cost; of a ragged
/// decomposition, and of halving_doubling in a reduce_scatter or all_gather, about as many. No schedule is
/// built.
double transfers_of(const topology::Plan& plan);

/// What the bytes of a dimension cross at worst, e.g. "socket 32 GB/s": the farthest kind of link, and the
/// narrowest bandwidth, on the ways between members of up to 16 of its groups.
std::string wires_of(const topology::Topology& topology, const topology::Placement& placement,
                     const topology::Plan& plan, int dimension, int root);

}  // namespace ddl::tools
