#pragma once

#include <optional>

#include "ddl/context.hpp"
#include "ddl/topology/plan.hpp"

namespace perf {

struct Prediction {
  double planned_us = 0;    ///< The planner's prediction.
  double simulated_us = 0;  ///< The simulated time of the steps that run.
};

/// The plan that the library uses for `bytes` bytes; none for a single rank or no bytes.
std::optional<ddl::topology::Plan> plan_of(ddl::Context& context, ddl::topology::Collective collective,
                                           std::size_t bytes, ddl::DataType type);

/// Predicts the time of a plan for `bytes` bytes. Takes up to seconds for many ranks.
Prediction predict(const ddl::topology::Topology& topology, const ddl::topology::Plan& plan,
                   std::size_t bytes, int root);

}  // namespace perf
