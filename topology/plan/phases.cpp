#include "ddl/topology/plan.hpp"

namespace ddl::topology {

std::vector<Phase> phases_of(const Plan& plan) {
  std::vector<Phase> phases;
  if (plan.collective == Collective::barrier) return phases;
  const int dimensions = plan.decomposition.dimensions();
  const auto algorithm = [&](int d) { return plan.dimensions[static_cast<std::size_t>(d)].algorithm; };
  const auto is_scatter = [&](int d) { return algorithm(d) <= Algorithm::two_shot; };
  if (plan.collective == Collective::broadcast) {
    for (int d = dimensions - 1; d >= 0; --d) {
      if (plan.decomposition.size(d) == 1) continue;
      if (algorithm(d) == Algorithm::two_shot) {
        phases.push_back({PhaseKind::scatter, d});
        phases.push_back({PhaseKind::all_gather, d});
      } else {
        phases.push_back({PhaseKind::broadcast, d});
      }
    }
    return phases;
  }
  for (int d = 0; d < dimensions; ++d) {
    if (plan.decomposition.size(d) == 1) continue;
    phases.push_back({is_scatter(d)                         ? PhaseKind::reduce_scatter
                      : algorithm(d) == Algorithm::one_shot ? PhaseKind::all_reduce
                                                            : PhaseKind::reduce,
                      d});
  }
  for (int d = dimensions - 1; d >= 0; --d) {
    if (plan.decomposition.size(d) == 1 || algorithm(d) == Algorithm::one_shot) continue;
    phases.push_back({is_scatter(d) ? PhaseKind::all_gather : PhaseKind::broadcast, d});
  }
  return phases;
}

}  // namespace ddl::topology
