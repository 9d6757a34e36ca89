#pragma once

#include <string>

#include "nmt_example/training/saved_run.hpp"

namespace nmt {

// What a run does after it has diverged: it ends, or goes back to a good checkpoint at half the learning
// rate. `diverged` says what was found, and begins each message.

/// The share of the learning rate that is left after so many times.
double rate_after(int rollbacks);

/// Throws `invalid_argument`, agreed, if the run must not go back, or has too often.
void check_may_roll_back(const Options& options, const RunState& state, const std::string& diverged);

/// The newest checkpoint, or, if training diverged again since it went back to that one, the one before; the
/// other one is put aside. Throws `invalid_argument`, agreed, if there is none. Collective.
SavedRun run_before_divergence(ddl::Context& context, const Options& options, ddl::Checkpoint& checkpoint,
                               const RunState& state, const std::string& diverged);

}  // namespace nmt
