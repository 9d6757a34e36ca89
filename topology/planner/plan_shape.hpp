#pragma once

#include <string>
#include <vector>

#include "ddl/topology/planner.hpp"

namespace ddl::topology {

/// A plan without its number of chunks.
struct PlanShape {
  std::size_t order = 0;  ///< Index into the planner's rank orders.
  Decomposition decomposition;
  std::vector<Algorithm> algorithms;

  friend bool operator==(const PlanShape&, const PlanShape&) = default;
};

/// What `algorithms_for` and the enumeration may use.
struct Family {
  Collective collective = Collective::all_reduce;
  Mode mode = Mode::explore;
};

/// Ways to go through a dimension of `size` members that differ from one another, in the order in which
/// equals are preferred. Two members: all scatters are the same exchange, which `ring` names. A prime size:
/// halving_doubling is two_shot. One member: ring, which does nothing.
std::vector<Algorithm> algorithms_for(const Family& family, int size, bool ragged);

/// Through more members than this, with all they have, a chain takes longer than any tree.
constexpr int longest_chain = 1024;

/// What MPI libraries do that don't look at the wiring: see `Mode::mpi`.
std::vector<PlanShape> mpi_shapes(Collective collective, int ranks);
/// What decides the steps: shapes with the same text, and chunks, do the same.
std::string steps_of(const PlanShape& shape, int chunks);

/// Ordered factorisations of n into factors above 1; {} for 1, so that one rank has one.
std::vector<std::vector<int>> ordered_factorisations(int n);

}  // namespace ddl::topology
