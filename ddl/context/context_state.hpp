#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/communicator/job.hpp"
#include "collectives/system/bootstrap.hpp"
#include "collectives/watch/socket_watch.hpp"
#include "ddl/context.hpp"
#include "ddl/log.hpp"
#include "ddl/parameter.hpp"
#include "ddl/timeline.hpp"
#include "ddl/timeline/run_observer.hpp"

namespace ddl {

class InProcessJob;

/// What a job does in another way than it was asked to, or than it should, and why. Each is a warning, once,
/// or an error in strict mode (ContextOptions::strict). Any thread.
class Fallbacks {
 public:
  Fallbacks(Log& log, bool strict) : log_(log), strict_(strict) {}

  /// Throws `unsupported`, agreed, in strict mode: all ranks find the same ones, in the same order.
  void add(const std::string& what);
  [[nodiscard]] std::vector<std::string> all() const;

  /// In strict mode: throws if there are any.
  static void require_none(const std::vector<std::string>& found, bool strict);

 private:
  Log& log_;
  const bool strict_;
  mutable std::mutex mutex_;
  std::vector<std::string> all_;
};

/// Writes each plan and adds what its use falls short of to the fallbacks. Both must outlive the result.
collectives::PlanObserver log_plans(Log& log, Fallbacks& fallbacks);

/// This rank's part in the job: all that its contexts share.
struct JobMembership {
  JobMembership(ContextOptions options_, std::unique_ptr<collectives::Bootstrap> bootstrap_,
                std::shared_ptr<collectives::CommunicatorImpl> all_, collectives::OpenedWatch watching_ = {},
                std::unique_ptr<RunObserver> observer_ = nullptr);
  JobMembership(const JobMembership&) = delete;
  JobMembership& operator=(const JobMembership&) = delete;
  /// Leaves the job in order, unless a failure was seen or an exception is passing through.
  ~JobMembership();

  /// Writes what there is of the timeline, without other ranks.
  void save_timeline_alone() noexcept {
    if (observer) observer->save_alone(log);
  }

  ContextOptions options;
  Log log;
  Fallbacks fallbacks;
  // Outlives the job's engine, whose networks may use what the bootstrap started.
  std::unique_ptr<collectives::Bootstrap> bootstrap;  ///< Null for a job of one rank.
  collectives::OpenedWatch watching;                  ///< The watch may be null, and is the engine's as well.
  std::shared_ptr<collectives::CommunicatorImpl> all;
  std::shared_ptr<collectives::Job> job;
  std::unique_ptr<RunObserver> observer;  ///< May be null.
  Timeline timeline;
  int exceptions_at_start;

 private:
  void meet_to_leave();
};

/// What a Context is a handle of: the job, and which of its ranks belong to the context.
struct ContextState {
  ContextState(std::shared_ptr<JobMembership> membership_,
               std::shared_ptr<collectives::CommunicatorImpl> impl_, Log log_)
      : membership(std::move(membership_)),
        impl(std::move(impl_)),
        communicator(impl),
        log(std::move(log_)) {}

  std::shared_ptr<JobMembership> membership;
  std::shared_ptr<collectives::CommunicatorImpl> impl;
  Communicator communicator;
  Log log;
  std::vector<Parameter> broadcast_parameters;  ///< With DDL_CHECK: those that all ranks must have alike.
};

/// A context of all ranks, once they are connected: plans by measured figures if the options want them.
/// Collective.
Context context_of_all(std::shared_ptr<JobMembership> membership);
/// Of rank `rank` of a job whose ranks are all in this process; `job` is null for a rank on its own.
/// Collective.
Context context_in_process(const ContextOptions& options, const topology::RankMap& map, int rank,
                           std::shared_ptr<collectives::PlanBook> plans, std::shared_ptr<InProcessJob> job,
                           std::shared_ptr<collectives::Watch> watch);

inline JobMembership& membership_of(const Context& context) noexcept { return *context.state().membership; }
/// This rank cannot go on: all calls under way end with an error, here and on the other ranks.
inline void announce_failure(const Context& context, const std::string& why) {
  membership_of(context).job->announce_failure(why);
}
/// Null if nothing is kept of the run.
inline RunObserver* observer_of(const Context& context) noexcept {
  return membership_of(context).observer.get();
}
inline collectives::CommunicatorImpl& communicator_of(const Context& context) noexcept {
  return *context.state().impl;
}
inline collectives::Engine& engine_of(const Context& context) noexcept {
  return membership_of(context).job->engine();
}
/// For names of what this rank does; may be null.
inline collectives::Watch* watch_of(const Context& context) noexcept { return engine_of(context).watch(); }
/// Fallbacks::add, of the context's.
inline void note_shortcoming(const Context& context, const std::string& what) {
  membership_of(context).fallbacks.add(what);
}

}  // namespace ddl
