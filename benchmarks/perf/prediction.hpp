#pragma once

#include <optional>

#include "ddl/context.hpp"
#include "ddl/topology/plan.hpp"

namespace perf {

struct Prediction {
  double planned_us = 0;    ///< The planner's.
  double simulated_us = 0;  ///< The simulator's for the steps that are executed.
};

/// The plan that the library uses for `bytes` bytes. None where there is no choice: one rank, no bytes.
std::optional<ddl::topology::Plan> plan_of(ddl::Context& context, ddl::topology::Collective collective,
                                           std::size_t bytes, ddl::DataType type);

/// What a plan's steps for `bytes` bytes should take. Up to seconds for many ranks.
Prediction predict(const ddl::topology::Topology& topology, const ddl::topology::Plan& plan,
                   std::size_t bytes, int root);

}  // namespace perf
