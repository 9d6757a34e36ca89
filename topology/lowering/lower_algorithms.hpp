#pragma once

#include "ddl/topology/plan.hpp"
#include "topology/lowering/lower_grid.hpp"
#include "topology/lowering/lower_steps.hpp"
#include "topology/lowering/shares.hpp"

namespace ddl::topology {

// What a member of a group does in one phase over a range that all of them hold: steps in rounds 0, 1, ...
// Both ends of a message put it into the same round, and no message of a round waits for another one of it.

/// How a member takes in what several others send it at once.
enum class Intake {
  side_by_side,  ///< Each into scratch memory of its own, then added in one order: only that is serial.
  /// One after the other into what it has, without scratch: for who reads the others' memory, in one pass.
  in_turn,
};
Intake intake_of(Carrier carrier);

/// The piece that `member` is left with by a reduce-scatter. The member's own
/// number except with halving_doubling, where the digits of the number (one for each prime factor, the
/// smallest factor's the least) are read backwards: so near members exchange the most, and ranges stay whole.
int piece_of_member(Algorithm algorithm, int size, int member);
/// Its inverse.
int member_of_piece(Algorithm algorithm, int size, int piece);

void ring_reduce_scatter(StepList& steps, const Group& group, Shares& shares);
void ring_all_gather(StepList& steps, const Group& group, Shares& shares);
void two_shot_reduce_scatter(StepList& steps, const Group& group, Shares& shares, Intake intake);
void two_shot_all_gather(StepList& steps, const Group& group, Shares& shares);
void halving_doubling_reduce_scatter(StepList& steps, const Group& group, Shares& shares, Intake intake);
void halving_doubling_all_gather(StepList& steps, const Group& group, Shares& shares);

/// One of those above.
void reduce_scatter(StepList& steps, Algorithm algorithm, const Group& group, Shares& shares, Intake intake);
void all_gather(StepList& steps, Algorithm algorithm, const Group& group, Shares& shares);

void one_shot_all_reduce(StepList& steps, const Group& group, Range range);

// From all to member 0.
void tree_reduce(StepList& steps, const Group& group, Range range);
void chain_reduce(StepList& steps, const Group& group, Range range);
void one_shot_reduce(StepList& steps, const Group& group, Range range, Intake intake);
/// Of what a reduce-scatter of equal shares left.
void gather(StepList& steps, const Group& group, Range range);

// From member 0 to all.
void tree_broadcast(StepList& steps, const Group& group, Range range);
void chain_broadcast(StepList& steps, const Group& group, Range range);
void one_shot_broadcast(StepList& steps, const Group& group, Range range);
void double_tree_broadcast(StepList& steps, const Group& group, Range range);
void scatter(StepList& steps, const Group& group, Range range);
/// After `scatter`: member 0 has everything already.
void all_gather_scattered(StepList& steps, const Group& group, Range range);

}  // namespace ddl::topology
