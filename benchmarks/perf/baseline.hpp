#pragma once

#include <memory>
#include <string>

#include "ddl/context.hpp"
#include "perf/call.hpp"
#include "perf/settings.hpp"

namespace perf {

/// One rank's part of a baseline: another implementation of the same calls.
class Baseline {
 public:
  virtual ~Baseline() = default;
  /// Whether it supports the call; the same on all ranks.
  [[nodiscard]] virtual bool can_run(const Call& call) const = 0;
  /// Returns when this rank's part is complete.
  virtual void run(const Call& call) = 0;
  /// A barrier before timed calls, by the baseline's own means, because connections are slow after they have
  /// been idle, as they are while the library's calls run.
  virtual void meet(ddl::Communicator& ours) { ours.barrier(); }
};

/// Shared by ranks that are threads of one process, for the baseline `threads`.
class ThreadTeam;
std::shared_ptr<ThreadTeam> make_thread_team(int threads);

/// Makes a baseline; null for `none`. Collective. Throws `unsupported` for a baseline that this build lacks,
/// and `invalid_argument` for one that does not fit the way in which the program was started.
std::unique_ptr<Baseline> make_baseline(BaselineKind kind, ddl::Context& context,
                                        const std::shared_ptr<ThreadTeam>& team);

// Each is in its own file; these two return null in a build without the library.
std::unique_ptr<Baseline> make_mpi_baseline();
std::unique_ptr<Baseline> make_gloo_baseline(ddl::Context& context);
std::unique_ptr<Baseline> make_loop_baseline();
std::unique_ptr<Baseline> make_threads_baseline(const std::shared_ptr<ThreadTeam>& team, int rank);

}  // namespace perf
