#include "perf/prediction.hpp"

#include <numeric>

#include "ddl/topology/planner.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/simulator.hpp"

namespace perf {

namespace topology = ddl::topology;

std::optional<topology::Plan> plan_of(ddl::Context& context, topology::Collective collective,
                                      std::size_t bytes, ddl::DataType type) {
  if (context.size() == 1 || bytes == 0) return std::nullopt;
  return context.communicator().plan(collective, bytes, type);
}

Prediction predict(const topology::Topology& topology, const topology::Plan& plan, std::size_t bytes,
                   int root) {
  topology::Placement placement(plan.order.size());
  std::iota(placement.begin(), placement.end(), 0);
  topology::Plan predicted = plan;
  predicted.bytes = bytes;
  topology::Planner(topology, placement).predict(predicted);
  topology::SimulationOptions options;
  options.element_bytes = size_of(plan.type);
  const topology::Schedule schedule =
      schedule_to_run(plan, bytes / options.element_bytes, root, topology, placement);
  return {predicted.predicted_us, simulate(topology, placement, schedule, options).total_us};
}

}  // namespace perf
