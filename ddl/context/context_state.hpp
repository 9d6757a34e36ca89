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
#include "ddl/timeline.hpp"
#include "ddl/timeline/run_observer.hpp"

namespace ddl {

/// This rank cannot go on: all calls under way end with an error, here and on the other ranks.
void announce_failure(Context& context, const std::string& why);
/// Null if nothing is kept of the run.
RunObserver* observer_of(Context& context) noexcept;
/// That of all ranks.
collectives::CommunicatorImpl& communicator_of(Context& context) noexcept;
/// For names of what this rank does; may be null.
collectives::Watch* watch_of(Context& context) noexcept;
collectives::Engine& engine_of(Context& context) noexcept;
/// Fallbacks::add, of the context's.
void note_shortcoming(Context& context, const std::string& what);

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

struct Context::State {
  State(ContextOptions options_, std::unique_ptr<collectives::Bootstrap> bootstrap_,
        std::shared_ptr<collectives::CommunicatorImpl> first, collectives::OpenedWatch watching_ = {},
        std::unique_ptr<RunObserver> observer_ = nullptr);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Leaves the job in order, unless a failure was seen or an exception is passing through.
  ~State();

  bool tell_of(const Error& error);
  /// Once plans are chosen for it: see ContextOptions::save_topology.
  void save_topology();
  /// Writes what there is of the timeline, without other ranks.
  void save_timeline_alone() noexcept {
    if (observer) observer->save_alone(log);
  }

  ContextOptions options;
  Log log;
  Fallbacks fallbacks;
  // Outlives the job's engine, whose networks may use what the bootstrap started.
  std::unique_ptr<collectives::Bootstrap> bootstrap;
  collectives::OpenedWatch watching;  ///< The watch may be null, and is the engine's as well.
  std::shared_ptr<collectives::CommunicatorImpl> impl;
  std::shared_ptr<collectives::Job> job;
  Communicator communicator;
  std::unique_ptr<RunObserver> observer;  ///< May be null.
  Timeline timeline;
  int exceptions_at_start;

 private:
  void meet_to_leave();
};

}  // namespace ddl
