#include "topology/planner/plan_trial.hpp"

#include <algorithm>

#include "ddl/topology/program.hpp"

namespace ddl::topology {

double PlanTrial::most_transfers(int ranks) { return ranks <= 16 ? 2000 : ranks <= 64 ? 20'000 : 0; }

Simulation PlanTrial::run(const Plan& plan) {
  SimulationOptions options;
  options.cost = cost_;
  options.element_bytes = size_of(plan.type);
  const std::size_t count = elements_of(plan);
  std::size_t messages = 0;
  for (const Program& program : lower_all(plan, count).ranks) {
    messages += as_index(std::ranges::count(program.steps, StepKind::send, &Step::kind));
  }
  return simulator_.run(schedule_to_run(plan, count, 0, *topology_, placement_, 2 * messages), options);
}

}  // namespace ddl::topology
