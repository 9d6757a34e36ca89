#pragma once

#include "collectives/communicator/job.hpp"
#include "ddl/fallbacks.hpp"
#include "ddl/log.hpp"

namespace ddl {

/// Writes each plan and adds what its use falls short of to the fallbacks. Both must outlive the result.
collectives::PlanObserver log_plans(Log& log, Fallbacks& fallbacks);

}  // namespace ddl
