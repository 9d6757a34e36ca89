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

/// The distinct ways through a dimension of `size` members, in the order in which equals are preferred. With
/// two members, all scatters are the same exchange, listed as `ring`, except in a broadcast or reduce. With a
/// prime size, halving_doubling is two_shot. With one member there is only `ring`, which does nothing.
std::vector<Algorithm> algorithms_for(Collective collective, Mode mode, int size, bool ragged);

/// A chain of more members takes longer than any tree, because each member forwards everything.
constexpr int longest_chain = 1024;

/// What MPI libraries do without knowledge of the wiring: see `Mode::mpi`.
std::vector<PlanShape> mpi_shapes(Collective collective, int ranks);
/// A key of the steps: shapes and chunks with equal keys have equal steps.
std::string steps_of(const PlanShape& shape, int chunks);

/// A grid with dimensions of these sizes; one rank if there are none.
Decomposition grid_of(const std::vector<int>& sizes);
/// Whether the inner dimensions are inside hosts of `size` ranks, and the others between hosts.
bool is_aligned(const Decomposition& decomposition, int size);

/// Ordered factorisations of n into factors above 1; for 1 a single empty one.
std::vector<std::vector<int>> ordered_factorisations(int n);

/// Up to this many ranks, every decomposition is considered.
constexpr int most_ranks_for_all = 64;

/// The shapes that a request's mode allows; of equals, preferred ones come first.
///
/// Above `most_ranks_for_all` ranks, a search grows plans from the innermost dimension outwards. It keeps
/// those of one dimension and, for each number of positions, the partial plans that are best when completed
/// in one of a few ways. Mode explore adds the shapes of modes rings, scatter_gather and mpi. A requested
/// decomposition with too many choices of algorithms is searched in the same way.
std::vector<PlanShape> find_shapes(const PlanRequest& request, int ranks, PlanTiming& timing);

}  // namespace ddl::topology
