#include "topology/planner/plan_trial.hpp"

#include "ddl/topology/lowering.hpp"

namespace ddl::topology {

double PlanTrial::most_transfers(int ranks) { return ranks <= 16 ? 2000 : ranks <= 64 ? 20'000 : 0; }

double PlanTrial::time(const Plan& plan) {
  SimulationOptions options;
  options.cost = cost_;
  options.element_bytes = size_of(plan.type);
  return simulator_.run(lower_all(plan, elements_of(plan)), options).total_us;
}

}  // namespace ddl::topology
