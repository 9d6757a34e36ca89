#pragma once

#include "collectives/communicator/job.hpp"
#include "ddl/log.hpp"

namespace ddl {

/// Writes about each plan that a communicator uses for the first time: what it falls short of as a warning,
/// once; one line at level 1; all of it at level 2. `log` outlives the observer.
collectives::PlanObserver log_plans(Log& log);

}  // namespace ddl
