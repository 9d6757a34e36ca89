#pragma once

#include <vector>

#include "ddl/topology/plan.hpp"
#include "topology/lowering/lower_grid.hpp"
#include "topology/lowering/lower_steps.hpp"
#include "topology/lowering/shares.hpp"
#include "topology/plan/algorithms.hpp"

namespace ddl::topology {

/// A phase with the rounds of a chunk that it takes: the same for all groups.
struct TimedPhase {
  Phase phase;
  Algorithm algorithm;
  Carrier carrier;
  int first_round;
  std::vector<GroupPattern> patterns;  ///< Of each size that its groups have.

  [[nodiscard]] const GroupPattern& pattern(int size) const;
};

/// Steps of a group's member in a phase, over a range that all members hold.
///
/// What several members send at once is reduced over shared memory by one receive_reduce after the other, in
/// one pass without scratch; elsewhere it is received side by side into scratch memory, and added in one
/// order.
void lower_phase(StepList& steps, const TimedPhase& timed, const Group& group, Shares& shares);
void lower_phase(StepList& steps, const TimedPhase& timed, const Group& group, Range range);

/// What lowering needs of a plan, for all ranks. Refers to the plan.
struct PlanInRounds {
  explicit PlanInRounds(const Plan& of);

  const Plan* plan;
  Grid grid;
  std::vector<TimedPhase> phases;
  int rounds = 0;  ///< Of a chunk.
  int chunks;
};

/// Steps of the rank at `place` for one chunk.
void lower_all_reduce(const PlanInRounds& plan, const Place& place, Range chunk, StepList& steps);
void lower_broadcast(const PlanInRounds& plan, const Place& place, const Place& root, Range chunk,
                     StepList& steps);
void lower_reduce(const PlanInRounds& plan, const Place& place, const Place& root, Range chunk,
                  StepList& steps);

/// Steps of the rank at `place` for all chunks of a reduce_scatter or all_gather, of `count` elements in all.
void lower_pieces(const PlanInRounds& plan, const Place& place, std::size_t count, StepList& steps);

}  // namespace ddl::topology
