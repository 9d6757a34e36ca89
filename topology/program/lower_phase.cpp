#include <algorithm>
#include <utility>

#include "topology/program/lowering.hpp"

namespace ddl::topology {

namespace {

/// Each member reduces the data of all members in the order of members, so that all get the same bits
/// whatever the operation. The sum is built outside `range`, which peers still read.
void all_reduce_in_scratch(StepList& steps, const TimedPhase& timed, const Group& group, Range range,
                           bool finishes) {
  const GroupPattern& pattern = timed.pattern(group);
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

const GroupPattern& TimedPhase::pattern(const Group& group) const {
  return *std::ranges::find(group.apart && !apart.empty() ? apart : patterns, group.size,
                            &GroupPattern::size);
}

void lower_phase(StepList& steps, const TimedPhase& timed, const Group& group, Shares& shares) {
  steps.set_narrow(timed.narrow);
  const GroupPattern& pattern = timed.pattern(group);
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
  EqualShares shares(range, timed.pattern(group).pieces());
  lower_phase(steps, timed, group, shares);
}

// Broadcast from a root and reduce to a root: the same groups, in opposite directions.

namespace {

/// Where a rank is in a broadcast or reduce, seen from the root. A dimension that scatters leaves all members
/// of the root's group with pieces; of other dimensions, only the root's coordinate has data before a
/// broadcast's phase, or the sums after a reduce's.
class RootedPlace {
 public:
  RootedPlace(const PlanInRounds& plan, const Place& place, const Place& root)
      : plan_(plan),
        place_(place),
        root_(root),
        member_in_([this](int group) { return splits(0) ? place_.member : gate_of(group); }) {}
  RootedPlace& operator=(RootedPlace&&) = delete;

  [[nodiscard]] bool takes_part(const Phase& phase) const {
    const bool is_of_root = phase.kind == PhaseKind::scatter || phase.kind == PhaseKind::gather;
    return has_data(phase.dimension) && (!is_of_root || is_in_group_of_root(phase.dimension));
  }
  /// Whether the rank has data when all dimensions before this one have been passed on the way up.
  [[nodiscard]] bool has_data(int dimension) const {
    for (int d = 0; d < dimension; ++d) {
      if (!splits(d) && index(d) != 0) return false;
    }
    return true;
  }
  /// Which part of a chunk it has then.
  [[nodiscard]] Range part(Range chunk, int dimension) const {
    for (int d = 0; d < dimension; ++d) {
      if (splits(d)) chunk = Partition(chunk, size(d)).piece(index(d));
    }
    return chunk;
  }
  /// Counted from the member that has the data first, or the sum at the end. Refers to this object.
  [[nodiscard]] Group group(int dimension) const {
    Group group = dimension == 0
                      ? Grid::counted_from(plan_.grid.first_dimension(place_), gate_of(place_.group))
                      : Grid::counted_from(plan_.grid.later_dimension(place_, dimension, member_in_),
                                           root_.outer[as_index(dimension - 1)]);
    group.apart = !is_in_group_of_root(dimension);
    return group;
  }

 private:
  [[nodiscard]] bool splits(int dimension) const {
    return scatters(plan_.plan->collective, plan_.plan->dimensions[as_index(dimension)].algorithm);
  }
  [[nodiscard]] int size(int dimension) const {
    return dimension == 0 ? plan_.grid.group_size(place_.group) : plan_.grid.sizes(dimension)[0];
  }
  /// Its index in its group, counted as in `group`.
  [[nodiscard]] int index(int dimension) const {
    const int from = dimension == 0 ? gate_of(place_.group) : root_.outer[as_index(dimension - 1)];
    const int mine = dimension == 0 ? place_.member : place_.outer[as_index(dimension - 1)];
    return (mine - from + size(dimension)) % size(dimension);
  }
  /// Whether the dimensions after this one do not part it from the root.
  [[nodiscard]] bool is_in_group_of_root(int dimension) const {
    return std::equal(root_.outer.begin() + dimension, root_.outer.end(), place_.outer.begin() + dimension);
  }
  /// The member through which data enters and leaves a group of the first dimension.
  [[nodiscard]] int gate_of(int group) const {
    return root_.member < plan_.grid.group_size(group) ? root_.member : 0;
  }

  const PlanInRounds& plan_;
  const Place& place_;
  const Place& root_;
  const std::function<int(int)> member_in_;
};

}  // namespace

void lower_rooted(const PlanInRounds& plan, const Place& place, const Place& root, Range chunk,
                  StepList& steps) {
  if (chunk.empty()) return;
  const RootedPlace mine(plan, place, root);
  const auto is_up = [](const TimedPhase& timed) {
    return timed.phase.kind == PhaseKind::reduce || timed.phase.kind == PhaseKind::reduce_scatter;
  };
  const auto sums = static_cast<std::size_t>(std::ranges::count_if(plan.phases, is_up));
  const auto finish = [&] {
    const int dimensions = static_cast<int>(plan.plan->dimensions.size());
    if (plan.plan->collective != Collective::reduce || !mine.has_data(dimensions)) return;
    const int rounds = sums < plan.phases.size() ? plan.phases[sums].first_round : plan.rounds;
    steps.start_phase(std::max(static_cast<int>(sums) - 1, 0), std::max(rounds - 1, 0));
    steps.finish(0, mine.part(chunk, dimensions));
  };
  for (std::size_t i = 0; i < plan.phases.size(); ++i) {
    if (i == sums) finish();
    const TimedPhase& timed = plan.phases[i];
    const int dimension = timed.phase.dimension;
    if (!mine.takes_part(timed.phase)) continue;
    steps.start_phase(static_cast<int>(i), timed.first_round);
    lower_phase(steps, timed, mine.group(dimension), mine.part(chunk, dimension));
  }
  if (sums == plan.phases.size()) finish();
}

}  // namespace ddl::topology
