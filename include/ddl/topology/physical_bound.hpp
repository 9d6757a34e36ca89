#pragma once

#include <cstdint>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// A lower bound in us for the time of every plan: the bytes that must cross cuts of the graph, and the
/// longest latency.
///
/// Devices are grouped by connectivity after links are removed, in five levels: links between network
/// switches; all network links; also those between packages; also PCIe; all links. For G groups with devices,
/// an all-reduce of N bytes moves at least 2N(G-1) bytes out of groups in total (N(G-1) of partial sums,
/// N(G-1) of results), and at least N out of and into each. A broadcast moves N into each group but the
/// root's, a reduce N out of each. Of n ranks, a group of g gets at least N g/n bytes in a reduce_scatter and
/// sends N (1 - g/n); in an all_gather it is the other way round. These bytes are divided by the bandwidth of
/// the links that leave the groups.
///
/// `bytes`: N, of the whole buffer. A barrier's bound is the longest latency. 0 for one rank or no bytes.
/// O(nodes + links). Throws `invalid_argument` as `require_valid` does for the placement.
double physical_bound(const Topology& topology, const Placement& placement, Collective collective,
                      std::uint64_t bytes);

}  // namespace ddl::topology
