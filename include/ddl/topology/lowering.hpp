#pragma once

#include <cstddef>

#include "ddl/topology/plan.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// One rank's program for `count` elements. O(its steps) time and memory.
///
/// The buffer is cut into the plan's chunks. Each chunk goes through the phases; a phase is a number of
/// rounds, the same for all groups. Chunk c starts c rounds after chunk 0, and steps are listed by time in
/// that picture, alike on all ranks: so streams carry chunks of different phases in turn, nothing deadlocks,
/// and the slowest dimension is kept busy while the others work ahead.
///
/// In a ragged first dimension the buffer is cut at the union of all groups' shard boundaries: each segment
/// has one owner in every group, and the dimensions after it run over its owners.
///
/// Errors: `invalid_argument` for a plan that `require_valid` refuses, and a rank or root that does not
/// exist.
Program lower(const Plan& plan, int rank, std::size_t count, int root = 0);

/// All ranks' programs.
Schedule lower_all(const Plan& plan, std::size_t count, int root = 0);

/// Dissemination barrier over a buffer of one element: ceil(log2 n) rounds (Hensgen, Finkel and Manber, 1988,
/// "Two algorithms for barrier synchronization"). After it, each rank has heard of each.
Program lower_barrier(int ranks, int rank);

}  // namespace ddl::topology
