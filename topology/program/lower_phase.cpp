#include <algorithm>
#include <utility>

#include "topology/program/lowering.hpp"

namespace ddl::topology {

namespace {

/// Each member reduces the data of all members in the order of members, so that all get the same bits
/// whatever the operation. The sum is built outside `range`, which peers still read.
void all_reduce_in_scratch(StepList& steps, const TimedPhase& timed, const Group& group, Range range,
                           bool finishes) {
  const GroupPattern& pattern = timed.pattern(group.size);
  std::vector<Message> messages;
  pattern.sends(0, group.mine, messages);
  if (timed.narrow) steps.to_wire(0, std::span(&range, 1));
  for (const Message& message : messages) steps.send(0, group.rank_at(message.peer), range);
  if (timed.in_one_pass()) {
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
    return steps.copy(0, range, sum.begin);
  }
  std::vector<std::size_t> operands;  // where each member's data is
  for (int index = 0; index < group.size; ++index) {
    operands.push_back(index == group.mine ? range.begin : steps.take_scratch(range.size()).begin);
  }
  pattern.receives(0, group.mine, messages);
  for (const Message& message : messages) {
    const std::size_t begin = operands[as_index(message.peer)];
    steps.receive(0, group.rank_at(message.peer), Range{begin, begin + range.size()});
  }
  const Range sum{operands[0], operands[0] + range.size()};
  for (std::size_t i = 1; i < operands.size(); ++i) steps.reduce(0, sum, operands[i]);
  if (finishes) steps.finish(0, sum);
  if (group.mine != 0) steps.copy(0, range, sum.begin);
}

}  // namespace

const GroupPattern& TimedPhase::pattern(int size) const {
  return *std::ranges::find(patterns, size, &GroupPattern::size);
}

void lower_phase(StepList& steps, const TimedPhase& timed, const Group& group, Shares& shares) {
  steps.set_narrow(timed.narrow);
  const GroupPattern& pattern = timed.pattern(group.size);
  if (timed.rounds_first && timed.phase.kind == PhaseKind::all_gather) {
    const int piece = piece_of_member(timed.algorithm, group.size, group.mine);
    steps.to_wire(0, shares.piece(piece));
  } else if (timed.rounds_first && group.mine == 0) {
    steps.to_wire(0, shares.pieces(0, pattern.pieces()));
  }
  std::vector<Message> messages;
  for (int round = 0; round < pattern.rounds(); ++round) {
    pattern.sends(round, group.mine, messages);
    for (const Message& message : messages) {
      const std::span<const Range> sent = shares.pieces(message.first, message.last);
      if (timed.narrow && pattern.reduces()) steps.to_wire(round, sent);
      steps.send(round, group.rank_at(message.peer), sent);
    }
    pattern.receives(round, group.mine, messages);
    if (!pattern.reduces()) {
      for (const Message& message : messages) {
        steps.receive(round, group.rank_at(message.peer), shares.pieces(message.first, message.last));
      }
      continue;
    }
    if (messages.empty()) continue;
    // All messages are added to the same pieces.
    const std::span<const Range> own = shares.pieces(messages[0].first, messages[0].last);
    if (messages.size() == 1 || timed.in_one_pass()) {
      for (const Range& range : own) {
        for (const Message& message : messages) {
          steps.receive_reduce(round, group.rank_at(message.peer), range);
        }
      }
      continue;
    }
    std::vector<std::pair<Range, Range>> received;  // scratch, and the range that it is added to
    for (const Message& message : messages) {
      for (const Range& range : own) {
        received.emplace_back(steps.take_scratch(range.size()), range);
        steps.receive(round, group.rank_at(message.peer), received.back().first);
      }
    }
    for (const auto& [part, range] : received) steps.reduce(round, range, part.begin);
  }
}

void lower_phase(StepList& steps, const TimedPhase& timed, const Group& group, Range range, bool finishes) {
  if (range.empty()) return;
  if (timed.phase.kind == PhaseKind::all_reduce) {
    if (group.size == 1) return;
    steps.set_narrow(timed.narrow);
    return all_reduce_in_scratch(steps, timed, group, range, finishes);
  }
  EqualShares shares(range, timed.pattern(group.size).pieces());
  lower_phase(steps, timed, group, shares);
}

// Broadcast from a root and reduce to a root: the same groups, in opposite directions.

namespace {

/// The groups of a broadcast or reduce, and which ranks take part in which phase.
class RootedGroups {
 public:
  RootedGroups(const Grid& grid, const Place& place, const Place& root)
      : grid_(grid), place_(place), root_(root), gate_([this](int group) { return gate_of(group); }) {}
  RootedGroups& operator=(RootedGroups&&) = delete;

  /// In a later dimension, a rank takes part only if it has the root's coordinates in the dimensions before
  /// it: only such ranks have the data before a broadcast's phase, or the sums before a reduce's.
  [[nodiscard]] bool takes_part(int dimension) const {
    return dimension == 0 ||
           (place_.member == gate_of(place_.group) &&
            std::equal(root_.outer.begin(), root_.outer.begin() + (dimension - 1), place_.outer.begin()));
  }
  /// Counted from the member that has the data first, or the sum at the end. Refers to this object.
  [[nodiscard]] Group group(int dimension) const {
    if (dimension == 0) return Grid::counted_from(grid_.first_dimension(place_), gate_of(place_.group));
    return Grid::counted_from(grid_.later_dimension(place_, dimension, gate_),
                              root_.outer[as_index(dimension - 1)]);
  }

 private:
  /// The member through which data enters and leaves a group of the first dimension.
  [[nodiscard]] int gate_of(int group) const {
    return root_.member < grid_.group_size(group) ? root_.member : 0;
  }

  const Grid& grid_;
  const Place& place_;
  const Place& root_;
  const std::function<int(int)> gate_;
};

}  // namespace

void lower_rooted(const PlanInRounds& plan, const Place& place, const Place& root, Range chunk,
                  StepList& steps) {
  if (chunk.empty()) return;
  const RootedGroups groups(plan.grid, place, root);
  bool is_finished = plan.plan->collective == Collective::broadcast;
  for (std::size_t i = 0; i < plan.phases.size(); ++i) {
    const TimedPhase& timed = plan.phases[i];
    if (!groups.takes_part(timed.phase.dimension)) continue;
    const Group group = groups.group(timed.phase.dimension);
    steps.start_phase(static_cast<int>(i), timed.first_round);
    lower_phase(steps, timed, group, chunk);
    if (timed.phase.kind == PhaseKind::reduce_scatter && i + 2 == plan.phases.size()) {
      // The sums are complete; each member holds a part of them.
      steps.finish(0, Partition(chunk, group.size).piece(group.mine));
      is_finished = true;
    }
  }
  const bool is_root = place.group == root.group && place.member == root.member;
  if (is_root && !is_finished) {
    steps.start_phase(std::max(static_cast<int>(plan.phases.size()) - 1, 0), std::max(plan.rounds - 1, 0));
    steps.finish(0, chunk);
  }
}

}  // namespace ddl::topology
