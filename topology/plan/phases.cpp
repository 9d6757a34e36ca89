#include "ddl/topology/plan.hpp"

namespace ddl::topology {
namespace {

bool is_scatter(Algorithm algorithm) { return algorithm <= Algorithm::two_shot; }

/// What a dimension does before the ones after it.
void add_up(Collective collective, Algorithm algorithm, int dimension, std::vector<Phase>& phases) {
  if (collective == Collective::reduce) {
    if (algorithm == Algorithm::two_shot) {
      phases.push_back({PhaseKind::reduce_scatter, dimension});
      phases.push_back({PhaseKind::gather, dimension});
    } else {
      phases.push_back({PhaseKind::reduce, dimension});
    }
  } else if (is_scatter(algorithm)) {
    phases.push_back({PhaseKind::reduce_scatter, dimension});
  } else {
    const bool is_one_shot = algorithm == Algorithm::one_shot;
    phases.push_back({is_one_shot ? PhaseKind::all_reduce : PhaseKind::reduce, dimension});
  }
}

/// What it does after them.
void add_down(Collective collective, Algorithm algorithm, int dimension, std::vector<Phase>& phases) {
  if (collective == Collective::broadcast) {
    if (algorithm == Algorithm::two_shot) {
      phases.push_back({PhaseKind::scatter, dimension});
      phases.push_back({PhaseKind::all_gather, dimension});
    } else {
      phases.push_back({PhaseKind::broadcast, dimension});
    }
  } else if (is_scatter(algorithm)) {
    phases.push_back({PhaseKind::all_gather, dimension});
  } else if (algorithm != Algorithm::one_shot) {
    phases.push_back({PhaseKind::broadcast, dimension});
  }
}

}  // namespace

std::vector<Phase> phases_of(const Plan& plan) {
  std::vector<Phase> phases;
  const Collective collective = plan.collective;
  if (collective == Collective::barrier) return phases;
  const bool goes_up = collective != Collective::broadcast && collective != Collective::all_gather;
  const bool goes_down = collective != Collective::reduce && collective != Collective::reduce_scatter;
  const int dimensions = plan.decomposition.dimensions();
  const auto algorithm = [&](int d) { return plan.dimensions[static_cast<std::size_t>(d)].algorithm; };
  for (int d = 0; goes_up && d < dimensions; ++d) {
    if (plan.decomposition.size(d) > 1) add_up(collective, algorithm(d), d, phases);
  }
  for (int d = dimensions - 1; goes_down && d >= 0; --d) {
    if (plan.decomposition.size(d) > 1) add_down(collective, algorithm(d), d, phases);
  }
  return phases;
}

}  // namespace ddl::topology
