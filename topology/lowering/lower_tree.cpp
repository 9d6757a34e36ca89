#include <bit>

#include "topology/lowering/binary_tree.hpp"
#include "topology/lowering/lower_algorithms.hpp"
#include "topology/plan/phase_figures.hpp"

namespace ddl::topology {
namespace {

void send_down(StepList& steps, const Group& group, const BinaryTree& tree, Range range) {
  if (range.empty() || group.size == 1) return;
  const int node = tree.node_of(group.mine);
  const int depth = tree.depth_of(node);
  if (node != 0) steps.receive(depth - 1, group.rank_at(tree.member_of(tree.parent_of(node))), range);
  const auto send_to = [&](int child) {
    if (!tree.has(child) || tree.parent_of(child) != node) return false;
    steps.send(depth, group.rank_at(tree.member_of(child)), range);
    return true;
  };
  if (node == 0) {
    send_to(static_cast<int>(std::bit_floor(static_cast<unsigned>(group.size - 1))));
    return;
  }
  // The right child is nearer where the tree ends.
  const int half = (node & -node) >> 1;
  if (half > 0) send_to(node - half);
  for (int distance = half; distance > 0 && !send_to(node + distance); distance >>= 1) {
  }
}

}  // namespace

void tree_reduce(StepList& steps, const Group& group, Range range) {
  for (int round = 0; round < tree_rounds(group.size); ++round) {
    const int bit = 1 << round;
    if ((group.mine & bit) != 0) return steps.send(round, group.after(-bit), range);
    if (group.mine + bit < group.size) steps.receive_reduce(round, group.after(bit), range);
  }
}

void tree_broadcast(StepList& steps, const Group& group, Range range) {
  const int height = tree_rounds(group.size);
  for (int round = 0; round < height; ++round) {
    const int bit = 1 << (height - 1 - round);
    if ((group.mine & (bit - 1)) != 0) continue;
    if ((group.mine & bit) != 0) {
      steps.receive(round, group.after(-bit), range);
    } else if (group.mine + bit < group.size) {
      steps.send(round, group.after(bit), range);
    }
  }
}

void double_tree_broadcast(StepList& steps, const Group& group, Range range) {
  const Partition halves(range, 2);
  send_down(steps, group, BinaryTree(group.size, false), halves.piece(0));
  send_down(steps, group, BinaryTree(group.size, true), halves.piece(1));
}

}  // namespace ddl::topology
