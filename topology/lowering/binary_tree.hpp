#pragma once

namespace ddl::topology {

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
