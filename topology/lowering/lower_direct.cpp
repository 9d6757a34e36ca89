// Algorithms whose members send to several others at once.

#include <span>
#include <utility>
#include <vector>

#include "topology/lowering/lower_algorithms.hpp"
#include "topology/plan/phase_figures.hpp"

namespace ddl::topology {
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

}  // namespace

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

void one_shot_all_reduce(StepList& steps, const Group& group, Range range) {
  if (range.empty() || group.size == 1) return;
  for (int distance = 1; distance < group.size; ++distance) steps.send(0, group.after(distance), range);
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

}  // namespace ddl::topology
