#pragma once

#include "ddl/topology/plan.hpp"
#include "topology/program/lowering.hpp"

namespace ddl::topology {

// What a member of a group does in one phase over a range that all of them hold: steps in rounds 0, 1, ...
// Both ends of a message put it into the same round, and no message of a round waits for another one of it.

/// How many rounds a group of `size` takes in a phase; an all-reduce's or broadcast's two phases are alike.
int rounds_of(Algorithm algorithm, int size);

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

/// `finishes`: no reduction follows, so the sum is finished before it is where others read.
void one_shot_all_reduce(StepList& steps, const Group& group, Range range, Intake intake, bool finishes);

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

/// Members 0, ..., size-1 as one of two binary trees below member 0. Who has children in one of them is a
/// leaf in the other.
///
/// The first one has 1, ..., size-1 in order: odd numbers are leaves, and a number's trailing zero bits are
/// its height. In the second one they are mirrored or, as that would leave odd numbers odd if size-1 is odd,
/// moved by one.
class BinaryTree {
 public:
  BinaryTree(int size, bool second) : last_(size - 1), second_(second) {}

  /// The node that a member is; 0 is the root.
  [[nodiscard]] int node_of(int member) const {
    if (!second_ || member == 0) return member;
    if (last_ % 2 == 0) return last_ + 1 - member;
    return member == 1 ? last_ : member - 1;
  }
  [[nodiscard]] int member_of(int node) const {
    if (!second_ || node == 0) return node;
    if (last_ % 2 == 0) return last_ + 1 - node;
    return node == last_ ? 1 : node + 1;
  }
  [[nodiscard]] bool has(int node) const { return node >= 1 && node <= last_; }
  /// Of a node other than the root. Where the one above it in a complete tree does not exist, it is the next
  /// one up that does.
  [[nodiscard]] int parent_of(int node) const {
    const int bit = node & -node;
    const int parent = (node ^ bit) | (bit << 1);
    return parent <= last_ ? parent : node ^ bit;
  }
  [[nodiscard]] int depth_of(int node) const {
    int depth = 0;
    for (; node != 0; node = parent_of(node)) ++depth;
    return depth;
  }

 private:
  int last_;
  bool second_;
};

}  // namespace ddl::topology
