#pragma once

#include <span>
#include <string>

#include "ddl/topology/plan.hpp"

namespace ddl::topology {

/// Figures of a phase that do not depend on the topology.
struct PhaseFigures {
  std::string members;        ///< Of a group: "4", or "1-4" if group sizes differ.
  int rounds = 0;             ///< Of one chunk; rounds follow one another.
  double bytes_per_rank = 0;  ///< All chunks, of the rank that sends most.
};

PhaseFigures figures_of(const Plan& plan, const Phase& phase);

/// The number of runs of consecutive ranks among those at positions 0, `stride`, 2 * `stride`, ... of
/// `order`. In a reduce_scatter or all_gather, that many ranges hold their pieces of one chunk.
int neighbour_runs(std::span<const int> order, int stride);

}  // namespace ddl::topology
