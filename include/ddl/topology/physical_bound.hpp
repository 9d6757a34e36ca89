#pragma once

#include <cstdint>

#include "ddl/topology/cost_model.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// Time in us that no plan can beat: bytes over the cuts that must carry them, and the longest latency.
///
/// The placement's devices are grouped by what stays connected when links are taken away: those between
/// network switches, all network links, also those between packages, also PCIe, all links. For G groups
/// with devices, an all-reduce of N bytes moves at least 2N(G-1) out of groups in all (N(G-1) partial sums,
/// N(G-1) results) and at least N out of and into each; a broadcast N into each but the root's,
/// a reduce N out of them. Of n ranks, a group with g of them gets at least N g/n of a reduce_scatter and
/// gives N (1 - g/n), and the other way round in an all_gather. Divided by the bandwidth of the links that
/// leave the groups. O(nodes + links).
double physical_bound(const Topology& topology, const Placement& placement, Collective collective,
                      std::uint64_t bytes);

}  // namespace ddl::topology
