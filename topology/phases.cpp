#include "ddl/topology/plan.hpp"

namespace ddl::topology {
namespace {

void add_up(std::vector<Phase>& phases, Algorithm algorithm, int dimension) {
  switch (algorithm) {
    case Algorithm::one_shot:
      phases.push_back({PhaseKind::all_reduce, dimension});
      break;
    case Algorithm::tree:
    case Algorithm::double_tree:
      phases.push_back({PhaseKind::reduce, dimension});
      break;
    case Algorithm::ring:
    case Algorithm::halving_doubling:
    case Algorithm::two_shot:
      phases.push_back({PhaseKind::reduce_scatter, dimension});
      break;
  }
}

void add_down(std::vector<Phase>& phases, Algorithm algorithm, int dimension) {
  switch (algorithm) {
    case Algorithm::one_shot:
      break;
    case Algorithm::tree:
    case Algorithm::double_tree:
      phases.push_back({PhaseKind::broadcast, dimension});
      break;
    case Algorithm::ring:
    case Algorithm::halving_doubling:
    case Algorithm::two_shot:
      phases.push_back({PhaseKind::all_gather, dimension});
      break;
  }
}

}  // namespace

std::vector<Phase> phases_of(const Plan& plan) {
  std::vector<Phase> phases;
  const int dimensions = plan.decomposition.dimensions();
  const auto algorithm = [&](int i) { return plan.dimensions.at(static_cast<std::size_t>(i)).algorithm; };
  const auto has_phases = [&](int i) { return plan.decomposition.size(i) > 1; };
  switch (plan.collective) {
    case Collective::all_reduce:
      for (int i = 0; i < dimensions; ++i) {
        if (has_phases(i)) add_up(phases, algorithm(i), i);
      }
      for (int i = dimensions; i-- > 0;) {
        if (has_phases(i)) add_down(phases, algorithm(i), i);
      }
      break;
    case Collective::broadcast:
      for (int i = dimensions; i-- > 0;) {
        if (!has_phases(i)) continue;
        if (algorithm(i) == Algorithm::two_shot) {
          phases.push_back({PhaseKind::scatter, i});
          phases.push_back({PhaseKind::all_gather, i});
        } else {
          phases.push_back({PhaseKind::broadcast, i});
        }
      }
      break;
    case Collective::barrier:
      break;
  }
  return phases;
}

}  // namespace ddl::topology
