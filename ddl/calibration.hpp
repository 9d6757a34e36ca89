#pragma once

#include "collectives/bootstrap.hpp"
#include "collectives/communicator/communicator_impl.hpp"
#include "ddl/context.hpp"
#include "ddl/log.hpp"

namespace ddl {

/// Before the first plan is asked for: has plans chosen by measured figures, as `options.probe` says. Rank 0
/// reads and writes the file; one that cannot be used is a warning, and measured anew if `probe` is `on`.
/// Collective.
void calibrate_plans(collectives::Bootstrap& bootstrap, collectives::CommunicatorImpl& communicator,
                     const ContextOptions& options, Log& log);

}  // namespace ddl
