// Broadcast from a root and reduce to a root: the same groups, in opposite directions.

#include <algorithm>

#include "topology/program/lowering.hpp"

namespace ddl::topology {
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
