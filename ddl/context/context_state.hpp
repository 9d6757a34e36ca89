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

/// The job's fallbacks and their reasons. Each causes one warning, or an error in strict mode
/// (ContextOptions::strict). Any thread.
class Fallbacks {
 public:
  Fallbacks(Log& log, bool strict) : log_(log), strict_(strict) {}

  /// Throws `unsupported` in strict mode. The error is agreed, because all ranks add the same fallbacks in
  /// the same order.
  void add(const std::string& what);
  [[nodiscard]] std::vector<std::string> all() const;

  /// Throws in strict mode if `found` is not empty.
  static void require_none(const std::vector<std::string>& found, bool strict);

 private:
  Log& log_;
  const bool strict_;
  mutable std::mutex mutex_;
  std::vector<std::string> all_;
};

/// Logs each new plan and adds its notes to the fallbacks. `log` and `fallbacks` must outlive the result.
collectives::PlanObserver log_plans(Log& log, Fallbacks& fallbacks);

/// This rank's membership in the job, which all its contexts share.
struct JobMembership {
  JobMembership(ContextOptions options_, std::unique_ptr<collectives::Bootstrap> bootstrap_,
                std::shared_ptr<collectives::CommunicatorImpl> all_, collectives::OpenedWatch watching_ = {},
                std::unique_ptr<RunObserver> observer_ = nullptr);
  JobMembership& operator=(JobMembership&&) = delete;
  /// Leaves the job in order, unless it has failed or an exception is unwinding the stack.
  ~JobMembership();

  /// Writes this rank's part of the timeline without the other ranks.
  void save_timeline_alone() noexcept {
    if (observer) observer->save_alone(log);
  }

  ContextOptions options;
  Log log;
  Fallbacks fallbacks;
  // Outlives the job's engine, whose networks may use the bootstrap's MPI.
  std::unique_ptr<collectives::Bootstrap> bootstrap;  ///< Null for a job of one rank.
  collectives::OpenedWatch watching;                  ///< The watch may be null; the engine shares it.
  std::shared_ptr<collectives::CommunicatorImpl> all;
  std::shared_ptr<collectives::Job> job;
  std::unique_ptr<RunObserver> observer;  ///< May be null.
  Timeline timeline;
  int exceptions_at_start;

 private:
  void meet_to_leave();
};

/// The state that copies of a Context share: the job, and the communicator of the context's ranks.
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
  std::vector<Parameter>
      broadcast_parameters;    ///< With DDL_CHECK: parameters that must stay the same on all ranks.
  std::string logged_buckets;  ///< The line in which a reducer has last described its buckets.
};

/// Makes the context of all ranks after they are connected; calibrates plans if the options request it.
/// Collective.
Context context_of_all(std::shared_ptr<JobMembership> membership);
/// Makes the context of rank `rank` of a job whose ranks are all in this process. `job`: null for a single
/// rank. Collective.
Context context_in_process(const ContextOptions& options, const topology::RankMap& map, int rank,
                           std::shared_ptr<collectives::PlanBook> plans, std::shared_ptr<InProcessJob> job,
                           std::shared_ptr<collectives::Watch> watch);

inline JobMembership& membership_of(const Context& context) noexcept { return *context.state().membership; }
/// Reports that this rank cannot go on: all pending calls end with an error, here and on the other ranks.
inline void announce_failure(const Context& context, const std::string& why) {
  membership_of(context).job->announce_failure(why);
}
/// Null if nothing about the run is recorded.
inline RunObserver* observer_of(const Context& context) noexcept {
  return membership_of(context).observer.get();
}
inline collectives::CommunicatorImpl& communicator_of(const Context& context) noexcept {
  return *context.state().impl;
}
inline collectives::Engine& engine_of(const Context& context) noexcept {
  return membership_of(context).job->engine();
}
/// For naming this rank's activity; may be null.
inline collectives::Watch* watch_of(const Context& context) noexcept { return engine_of(context).watch(); }
/// Calls Fallbacks::add for the context's job.
inline void note_shortcoming(const Context& context, const std::string& what) {
  membership_of(context).fallbacks.add(what);
}

}  // namespace ddl
