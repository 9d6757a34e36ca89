#pragma once

#include <span>
#include <string>

#include "ddl/topology/plan.hpp"

namespace ddl::topology {

/// What a phase is in figures, whatever the wiring.
struct PhaseFigures {
  std::string members;        ///< Of a group: "4", or "1-4" where they differ.
  int rounds = 0;             ///< One after the other, for one chunk.
  double bytes_per_rank = 0;  ///< All chunks, by the rank that sends most.
};

PhaseFigures figures_of(const Plan& plan, const Phase& phase);

/// How many runs of neighbouring numbers there are among the ranks at every `stride`-th position of an order,
/// from the first one on: so many ranges their pieces are in a reduce_scatter or all_gather of one chunk.
int neighbour_runs(std::span<const int> order, int stride);

}  // namespace ddl::topology
