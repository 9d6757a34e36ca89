#pragma once

#include <string>
#include <vector>

#include "ddl/topology/planner.hpp"

namespace ddl::topology {

class PlanTiming;

/// A plan without its number of chunks.
struct PlanShape {
  std::size_t order = 0;  ///< Index into the planner's rank orders.
  Decomposition decomposition;
  std::vector<Algorithm> algorithms;

  friend bool operator==(const PlanShape&, const PlanShape&) = default;
};

/// Ways to go through a dimension of `size` members that differ from one another, in the order in which
/// equals are preferred. Two members: all scatters are the same exchange, which `ring` names. A prime size:
/// halving_doubling is two_shot. One member: ring, which does nothing.
std::vector<Algorithm> algorithms_for(Collective collective, Mode mode, int size, bool ragged);

/// Through more members than this, with all they have, a chain takes longer than any tree.
constexpr int longest_chain = 1024;

/// What MPI libraries do that don't look at the wiring: see `Mode::mpi`.
std::vector<PlanShape> mpi_shapes(Collective collective, int ranks);
/// What decides the steps: shapes with the same text, and chunks, do the same.
std::string steps_of(const PlanShape& shape, int chunks);

/// The grid of dimensions of these sizes; one rank for none.
Decomposition grid_of(const std::vector<int>& sizes);
/// Whether some dimensions are inside hosts of `size` ranks and the others between them.
bool is_aligned(const Decomposition& decomposition, int size);

/// Ordered factorisations of n into factors above 1; {} for 1, so that one rank has one.
std::vector<std::vector<int>> ordered_factorisations(int n);

/// Up to so many ranks every decomposition is looked at.
constexpr int most_ranks_for_all = 64;

/// The shapes that a request's mode allows, those that are preferred among equals first.
///
/// For more than `most_ranks_for_all` ranks: from the innermost dimension outwards, only partial plans are
/// kept that are among the best of their number of positions when completed in one of a few ways, and those
/// of one dimension. Mode explore then has what modes rings, scatter_gather and mpi have, too. So is a
/// decomposition of very many dimensions searched.
std::vector<PlanShape> find_shapes(const PlanRequest& request, int ranks, PlanTiming& timing);

}  // namespace ddl::topology
