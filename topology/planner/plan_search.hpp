#pragma once

#include <vector>

#include "topology/planner/plan_shape.hpp"
#include "topology/planner/plan_timing.hpp"

namespace ddl::topology {

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
