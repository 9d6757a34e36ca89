#include "topology/lowering/lower_algorithms.hpp"

namespace ddl::topology {

void ring_reduce_scatter(StepList& steps, const Group& group, Shares& shares) {
  if (group.size == 1) return;
  const int next = group.after(1);
  const int previous = group.after(-1);
  for (int round = 0; round + 1 < group.size; ++round) {
    steps.send(round, next, shares.piece(group.index_after(-1 - round)));
    steps.receive_reduce(round, previous, shares.piece(group.index_after(-2 - round)));
  }
}

void ring_all_gather(StepList& steps, const Group& group, Shares& shares) {
  if (group.size == 1) return;
  const int next = group.after(1);
  const int previous = group.after(-1);
  for (int round = 0; round + 1 < group.size; ++round) {
    steps.send(round, next, shares.piece(group.index_after(-round)));
    steps.receive(round, previous, shares.piece(group.index_after(-1 - round)));
  }
}

void chain_broadcast(StepList& steps, const Group& group, Range range) {
  if (group.mine > 0) steps.receive(group.mine - 1, group.after(-1), range);
  if (group.mine + 1 < group.size) steps.send(group.mine, group.after(1), range);
}

void chain_reduce(StepList& steps, const Group& group, Range range) {
  const int to_the_end = group.size - 1 - group.mine;
  if (to_the_end > 0) steps.receive_reduce(to_the_end - 1, group.after(1), range);
  if (group.mine > 0) steps.send(to_the_end, group.after(-1), range);
}

}  // namespace ddl::topology
