#pragma once

#include <vector>

#include "ddl/topology/plan.hpp"
#include "topology/lowering/lower_grid.hpp"
#include "topology/lowering/lower_steps.hpp"

namespace ddl::topology {

/// A phase with the rounds of a chunk that it takes: the same for all groups.
struct TimedPhase {
  Phase phase;
  Algorithm algorithm;
  Carrier carrier;
  int first_round;
};

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
