#include "topology/program/algorithms.hpp"

#include <bit>
#include <span>
#include <utility>
#include <vector>

#include "topology/plan/phase_figures.hpp"

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

namespace {

/// One stage of halving and doubling: an exchange between the members that differ in one digit.
struct Stage {
  int size;         // of the exchange
  int mine;         // this member's digit
  int stride;       // between its members
  int first_piece;  // of the pieces that it splits
  int run;          // pieces that each one is left with

  [[nodiscard]] std::span<const Range> pieces_of(Shares& shares, int digit) const {
    return shares.pieces(first_piece + digit * run, first_piece + (digit + 1) * run);
  }
};

std::vector<Stage> stages_of(int size, int member) {
  std::vector<Stage> stages;
  int stride = 1;
  int first_piece = 0;
  int run = size;
  for (const int factor : prime_factors(size)) {
    run /= factor;
    const int digit = member / stride % factor;
    stages.push_back({factor, digit, stride, first_piece, run});
    first_piece += digit * run;
    stride *= factor;
  }
  return stages;
}

Group group_of(const Stage& stage, const Group& group) {
  const int first = group.mine - stage.mine * stage.stride;
  return {stage.size, stage.mine, [&group, first, stride = stage.stride](int digit) {
            return group.rank_at(first + digit * stride);
          }};
}

/// Each member sends each other one what that one is to be left with. The same order everywhere would make
/// all of them send to one member first.
template <class RangesOf>
void exchange_and_reduce(StepList& steps, int round, const Group& group, Intake intake,
                         const RangesOf& ranges_of) {
  for (int distance = 1; distance < group.size; ++distance) {
    const int index = group.index_after(distance);
    steps.send(round, group.rank_at(index), ranges_of(index));
  }
  const std::span<const Range> own = ranges_of(group.mine);
  if (group.size == 2 || intake == Intake::in_turn) {
    for (const Range& range : own) {
      for (int distance = 1; distance < group.size; ++distance) {
        steps.receive_reduce(round, group.after(-distance), range);
      }
    }
    return;
  }
  std::vector<std::pair<Range, Range>> received;  // and what each is added to
  for (int distance = 1; distance < group.size; ++distance) {
    for (const Range& range : own) {
      received.emplace_back(steps.take_scratch(range.size()), range);
      steps.receive(round, group.after(-distance), received.back().first);
    }
  }
  for (const auto& [part, range] : received) steps.reduce(round, range, part.begin);
}

template <class RangesOf>
void exchange(StepList& steps, int round, const Group& group, const RangesOf& ranges_of) {
  const std::span<const Range> own = ranges_of(group.mine);
  for (int distance = 1; distance < group.size; ++distance) steps.send(round, group.after(distance), own);
  for (int distance = 1; distance < group.size; ++distance) {
    const int index = group.index_after(-distance);
    steps.receive(round, group.rank_at(index), ranges_of(index));
  }
}

/// The sum of all in the members' order, one after the other, apart from the range: others read that until
/// they have their own sums, and nobody waits for another one's.
void reduce_in_turn(StepList& steps, const Group& group, Range range, bool finishes) {
  const Range sum = steps.take_scratch(range.size());
  for (int index = 0; index < group.size; ++index) {
    if (index == group.mine) {
      index == 0 ? steps.copy(0, sum, range.begin) : steps.reduce(0, sum, range.begin);
    } else if (index == 0) {
      steps.receive(0, group.rank_at(index), sum);
    } else {
      steps.receive_reduce(0, group.rank_at(index), sum);
    }
  }
  if (finishes) steps.finish(0, sum);
  steps.copy(0, range, sum.begin);
}

}  // namespace

int rounds_of(Algorithm algorithm, int size) {
  switch (algorithm) {
    case Algorithm::ring:
      return size - 1;
    case Algorithm::halving_doubling:
      return static_cast<int>(prime_factors(size).size());
    case Algorithm::two_shot:
    case Algorithm::one_shot:
      return 1;
    case Algorithm::tree:
    case Algorithm::double_tree:
      return tree_rounds(size);
  }
  return 0;
}

Intake intake_of(Carrier carrier) {
  return carrier == Carrier::shared_memory ? Intake::in_turn : Intake::side_by_side;
}

int piece_of_member(Algorithm algorithm, int size, int member) {
  if (algorithm != Algorithm::halving_doubling || size == 1) return member;
  const Stage last = stages_of(size, member).back();
  return last.first_piece + last.mine;
}

int member_of_piece(Algorithm algorithm, int size, int piece) {
  if (algorithm != Algorithm::halving_doubling) return piece;
  int member = 0;
  int stride = 1;
  int run = size;
  for (const int factor : prime_factors(size)) {
    run /= factor;
    member += piece / run * stride;
    piece %= run;
    stride *= factor;
  }
  return member;
}

void two_shot_reduce_scatter(StepList& steps, const Group& group, Shares& shares, Intake intake) {
  exchange_and_reduce(steps, 0, group, intake, [&](int index) { return shares.piece(index); });
}

void two_shot_all_gather(StepList& steps, const Group& group, Shares& shares) {
  exchange(steps, 0, group, [&](int index) { return shares.piece(index); });
}

void halving_doubling_reduce_scatter(StepList& steps, const Group& group, Shares& shares, Intake intake) {
  int round = 0;
  for (const Stage& stage : stages_of(group.size, group.mine)) {
    exchange_and_reduce(steps, round++, group_of(stage, group), intake,
                        [&](int digit) { return stage.pieces_of(shares, digit); });
  }
}

void halving_doubling_all_gather(StepList& steps, const Group& group, Shares& shares) {
  const std::vector<Stage> stages = stages_of(group.size, group.mine);
  int round = 0;
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    exchange(steps, round++, group_of(*stage, group),
             [&](int digit) { return stage->pieces_of(shares, digit); });
  }
}

void reduce_scatter(StepList& steps, Algorithm algorithm, const Group& group, Shares& shares, Intake intake) {
  switch (algorithm) {
    case Algorithm::ring:
      return ring_reduce_scatter(steps, group, shares);
    case Algorithm::halving_doubling:
      return halving_doubling_reduce_scatter(steps, group, shares, intake);
    default:
      return two_shot_reduce_scatter(steps, group, shares, intake);
  }
}

void all_gather(StepList& steps, Algorithm algorithm, const Group& group, Shares& shares) {
  switch (algorithm) {
    case Algorithm::ring:
      return ring_all_gather(steps, group, shares);
    case Algorithm::halving_doubling:
      return halving_doubling_all_gather(steps, group, shares);
    default:
      return two_shot_all_gather(steps, group, shares);
  }
}

void one_shot_all_reduce(StepList& steps, const Group& group, Range range, Intake intake, bool finishes) {
  if (range.empty() || group.size == 1) return;
  for (int distance = 1; distance < group.size; ++distance) steps.send(0, group.after(distance), range);
  if (intake == Intake::in_turn) return reduce_in_turn(steps, group, range, finishes);
  std::vector<std::size_t> operands;  // where each member's is
  for (int index = 0; index < group.size; ++index) {
    operands.push_back(index == group.mine ? range.begin : steps.take_scratch(range.size()).begin);
  }
  for (int distance = 1; distance < group.size; ++distance) {
    const int index = group.index_after(-distance);
    const std::size_t begin = operands[static_cast<std::size_t>(index)];
    steps.receive(0, group.rank_at(index), {begin, begin + range.size()});
  }
  // ((x0 op x1) op x2) ... on every member, so that all have the same bits whatever op does.
  const Range sum{operands[0], operands[0] + range.size()};
  for (std::size_t i = 1; i < operands.size(); ++i) steps.reduce(0, sum, operands[i]);
  if (finishes) steps.finish(0, sum);
  if (group.mine != 0) steps.copy(0, range, sum.begin);
}

void one_shot_reduce(StepList& steps, const Group& group, Range range, Intake intake) {
  if (group.mine != 0) return steps.send(0, group.rank_at(0), range);
  if (group.size == 2 || intake == Intake::in_turn) {
    for (int index = 1; index < group.size; ++index) steps.receive_reduce(0, group.rank_at(index), range);
    return;
  }
  std::vector<Range> received;
  for (int index = 1; index < group.size; ++index) {
    received.push_back(steps.take_scratch(range.size()));
    steps.receive(0, group.rank_at(index), received.back());
  }
  for (const Range& part : received) steps.reduce(0, range, part.begin);
}

void gather(StepList& steps, const Group& group, Range range) {
  const Partition pieces(range, group.size);
  if (group.mine != 0) return steps.send(0, group.rank_at(0), pieces.piece(group.mine));
  for (int index = 1; index < group.size; ++index) {
    steps.receive(0, group.rank_at(index), pieces.piece(index));
  }
}

void one_shot_broadcast(StepList& steps, const Group& group, Range range) {
  if (group.mine != 0) return steps.receive(0, group.rank_at(0), range);
  for (int index = 1; index < group.size; ++index) steps.send(0, group.rank_at(index), range);
}

void scatter(StepList& steps, const Group& group, Range range) {
  const Partition pieces(range, group.size);
  if (group.mine != 0) return steps.receive(0, group.rank_at(0), pieces.piece(group.mine));
  for (int index = 1; index < group.size; ++index) {
    steps.send(0, group.rank_at(index), pieces.piece(index));
  }
}

void all_gather_scattered(StepList& steps, const Group& group, Range range) {
  const Partition pieces(range, group.size);
  for (int distance = 1; distance < group.size; ++distance) {
    const int index = group.index_after(distance);
    if (index != 0) steps.send(0, group.rank_at(index), pieces.piece(group.mine));
  }
  if (group.mine == 0) return;
  for (int distance = 1; distance < group.size; ++distance) {
    const int index = group.index_after(-distance);
    steps.receive(0, group.rank_at(index), pieces.piece(index));
  }
}

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
