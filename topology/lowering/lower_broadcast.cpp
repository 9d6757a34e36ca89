#include <algorithm>

#include "topology/lowering/lower_phases.hpp"

namespace ddl::topology {

void lower_broadcast(const PlanInRounds& plan, const Place& place, const Place& root, Range chunk,
                     StepList& steps) {
  if (chunk.empty()) return;
  // The member by which the data comes into a group of the first dimension.
  const std::function<int(int)> entry = [&](int group) {
    return root.member < plan.grid.group_size(group) ? root.member : 0;
  };
  // Before the phase of dimension i, those have the data who are where the root is in dimensions up to i.
  const auto takes_part = [&](int dimension) {
    return dimension == 0 ||
           (place.member == entry(place.group) &&
            std::equal(root.outer.begin(), root.outer.begin() + (dimension - 1), place.outer.begin()));
  };
  for (std::size_t i = 0; i < plan.phases.size(); ++i) {
    const TimedPhase& timed = plan.phases[i];
    const int dimension = timed.phase.dimension;
    if (!takes_part(dimension)) continue;
    const Group group = dimension == 0
                            ? Grid::counted_from(plan.grid.first_dimension(place), entry(place.group))
                            : Grid::counted_from(plan.grid.later_dimension(place, dimension, entry),
                                                 root.outer[static_cast<std::size_t>(dimension - 1)]);
    steps.start_phase(static_cast<int>(i), timed.first_round);
    lower_phase(steps, timed, group, chunk);
  }
}

}  // namespace ddl::topology
