#pragma once

#include <memory>
#include <string>

#include "ddl/context.hpp"
#include "perf/call.hpp"
#include "perf/settings.hpp"

namespace perf {

/// What ours is compared with: the same calls done by something else. One rank's.
class Baseline {
 public:
  virtual ~Baseline() = default;
  /// Whether it can do the call; the same on all ranks.
  [[nodiscard]] virtual bool can_run(const Call& call) const = 0;
  /// Returns when this rank's part is done.
  virtual void run(const Call& call) = 0;
  /// A barrier before calls that are timed, by its own means: connections that have been idle, as they are
  /// while ours are busy, take their time at first.
  virtual void meet(ddl::Communicator& ours) { ours.barrier(); }
};

/// What ranks that are threads of one process share, for the baseline `threads`.
class ThreadTeam;
std::shared_ptr<ThreadTeam> make_thread_team(int threads);

/// Null for `none`. Collective. Throws `unsupported` for what is not in this build, `invalid_argument` for
/// what cannot be had as the program was started.
std::unique_ptr<Baseline> make_baseline(BaselineKind kind, ddl::Context& context,
                                        const std::shared_ptr<ThreadTeam>& team);

// Each in a file of its own; these two return null where the build is without it.
std::unique_ptr<Baseline> make_mpi_baseline();
std::unique_ptr<Baseline> make_gloo_baseline(ddl::Context& context);
std::unique_ptr<Baseline> make_loop_baseline();
std::unique_ptr<Baseline> make_threads_baseline(const std::shared_ptr<ThreadTeam>& team, int rank);

}  // namespace perf
