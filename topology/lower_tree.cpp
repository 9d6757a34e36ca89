#include <bit>

#include "topology/lower_algorithms.hpp"
#include "topology/phase_figures.hpp"

namespace ddl::topology {
namespace {

/// A binary tree over 1, ..., `last` in order, below 0: odd numbers are leaves, and a number's trailing zero
/// bits are its height. Where the parent so found does not exist, it is the next one up that does.
int parent_of(int node, int last) {
  const int bit = node & -node;
  const int parent = (node ^ bit) | (bit << 1);
  return parent <= last ? parent : node ^ bit;
}

int depth_of(int node, int last) {
  int depth = 0;
  for (; node != 0; node = parent_of(node, last)) ++depth;
  return depth;
}

/// Members 0, ..., size-1 as nodes of one of two such trees. In the second one they are mirrored or, as that
/// would leave odd numbers odd if their number is odd, moved by one: who is inner in one is a leaf in the
/// other.
class BinaryTree {
 public:
  BinaryTree(int size, bool second) : last_(size - 1), second_(second) {}

  [[nodiscard]] int last() const { return last_; }
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

 private:
  int last_;
  bool second_;
};

void send_down(StepList& steps, const Group& group, const BinaryTree& tree, Range range) {
  if (range.empty() || group.size == 1) return;
  const int last = tree.last();
  const int node = tree.node_of(group.mine);
  const int depth = depth_of(node, last);
  if (node != 0) {
    steps.receive(depth - 1, group.rank_at(tree.member_of(parent_of(node, last))), range);
  }
  const auto send_to = [&](int child) {
    if (child >= 1 && child <= last && parent_of(child, last) == node) {
      steps.send(depth, group.rank_at(tree.member_of(child)), range);
      return true;
    }
    return false;
  };
  if (node == 0) {
    send_to(static_cast<int>(std::bit_floor(static_cast<unsigned>(last))));
    return;
  }
  const int half = (node & -node) >> 1;
  if (half == 0) return;
  send_to(node - half);
  for (int step = half; step > 0 && !send_to(node + step); step >>= 1) {
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
