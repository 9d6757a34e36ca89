#pragma once

#include <span>
#include <string>

#include "ddl/topology/plan.hpp"

namespace ddl::topology {

/// What a phase is in figures, whatever the wiring.
struct PhaseFigures {
  std::string members;        ///< Of a group: "4", or "1-4" where they differ.
  int rounds = 0;             ///< One after the other, for one chunk.
  double bytes_per_rank = 0;  ///< Sent, all chunks, by a rank that sends most.
};

PhaseFigures figures_of(const Plan& plan, const Phase& phase);

/// Of the ranks at every `stride`-th position of an order, from the first one on: how many runs of
/// neighbouring numbers there are. So many ranges their pieces are in a reduce_scatter or all_gather of one
/// chunk.
int neighbour_runs(std::span<const int> order, int stride);

/// The prime factors of a size, ascending.
std::vector<int> prime_factors(int size);
/// ceil(log2(members)).
int tree_rounds(int members);

}  // namespace ddl::topology
