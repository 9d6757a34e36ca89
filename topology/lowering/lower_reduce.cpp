#include <algorithm>

#include "topology/lowering/lower_phases.hpp"

namespace ddl::topology {

void lower_reduce(const PlanInRounds& plan, const Place& place, const Place& root, Range chunk,
                  StepList& steps) {
  if (chunk.empty()) return;
  // The member that has what a group of the first dimension has reduced.
  const std::function<int(int)> exit = [&](int group) {
    return root.member < plan.grid.group_size(group) ? root.member : 0;
  };
  // Before the phase of dimension i, those have sums who are where the root is in dimensions up to i.
  const auto takes_part = [&](int dimension) {
    return dimension == 0 ||
           (place.member == exit(place.group) &&
            std::equal(root.outer.begin(), root.outer.begin() + (dimension - 1), place.outer.begin()));
  };
  bool is_finished = false;
  for (std::size_t i = 0; i < plan.phases.size(); ++i) {
    const TimedPhase& timed = plan.phases[i];
    const int dimension = timed.phase.dimension;
    if (!takes_part(dimension)) return;
    const Group group = dimension == 0
                            ? Grid::counted_from(plan.grid.first_dimension(place), exit(place.group))
                            : Grid::counted_from(plan.grid.later_dimension(place, dimension, exit),
                                                 root.outer[static_cast<std::size_t>(dimension - 1)]);
    steps.start_phase(static_cast<int>(i), timed.first_round);
    lower_phase(steps, timed, group, chunk);
    if (timed.phase.kind == PhaseKind::reduce_scatter && i + 2 == plan.phases.size()) {
      // The last sums: each member has a part of them.
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
