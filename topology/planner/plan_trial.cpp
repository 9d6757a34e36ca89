#include "topology/planner/plan_trial.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/topology/program.hpp"
#include "topology/plan/phase_figures.hpp"

namespace ddl::topology {

std::string steps_of(const PlanShape& shape, int chunks) {
  std::string key = fmt::format("{} {}", shape.order, chunks);
  if (shape.decomposition.ragged()) key += to_string(shape.decomposition);
  for (int d = 0; d < shape.decomposition.dimensions(); ++d) {
    const Algorithm algorithm = shape.algorithms[static_cast<std::size_t>(d)];
    const int size = shape.decomposition.size(d);
    const bool is_ragged = d == 0 && shape.decomposition.ragged();
    if (algorithm != Algorithm::halving_doubling || is_ragged) {
      if (size > 1) key += fmt::format(" {}{}", size, to_string(algorithm));
      continue;
    }
    for (const int factor : prime_factors(size)) {
      key += fmt::format(" {}{}", factor, to_string(factor == 2 ? Algorithm::ring : Algorithm::two_shot));
    }
  }
  return key;
}

double PlanTrial::most_transfers(int ranks) { return ranks <= 16 ? 2000 : ranks <= 64 ? 20'000 : 0; }

double PlanTrial::time(const Plan& plan) {
  SimulationOptions options;
  options.cost = cost_;
  options.element_bytes = size_of(plan.type);
  const std::size_t count = elements_of(plan);
  std::size_t messages = 0;
  for (const Program& program : lower_all(plan, count).ranks) {
    messages += static_cast<std::size_t>(std::ranges::count(program.steps, StepKind::send, &Step::kind));
  }
  return simulator_.run(schedule_to_run(plan, count, 0, *topology_, placement_, 2 * messages), options)
      .total_us;
}

}  // namespace ddl::topology
