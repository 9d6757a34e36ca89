#pragma once

#include <span>
#include <vector>

#include "ddl/topology/simulator.hpp"
#include "topology/program/streams.hpp"
#include "topology/simulator/shared_dependencies.hpp"

namespace ddl::topology {

/// The chain of events that ends last, in order: each starts when the one before it ends. `start` and `end`
/// are the times of all steps, `joined` the times at which ranks join. Causes are found by equal times.
///
/// A send that only kept its rank from issuing the next one counts until the end of its issue.
std::vector<SimulatedEvent> critical_path(const StepNumbers& steps, const Streams& streams,
                                          const SharedDependencies& dependencies,
                                          std::span<const double> start, std::span<const double> end,
                                          std::span<const double> joined);

}  // namespace ddl::topology
