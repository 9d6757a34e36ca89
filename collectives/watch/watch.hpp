#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/watch/exit_report.hpp"
#include "collectives/watch/flight_recorder.hpp"

namespace ddl::collectives {

/// Tells this rank of a failure of the job while any of its threads wait or compute, tells the other ranks of
/// this rank's failure, and gathers how far each rank had come. The first failure of the job counts.
/// Thread-safe.
class Watch {
 public:
  /// How long a rank has to stop after it hears of a failure, and how long gathering the report takes at
  /// most.
  static constexpr auto time_to_stop = std::chrono::milliseconds(100);
  static constexpr auto time_to_report = std::chrono::milliseconds(300);

  Watch& operator=(Watch&&) = delete;
  virtual ~Watch() = default;

  /// Adds the flight recorder of another rank of this host, for reports in case that rank dies. `tape` must
  /// live until `detach`. Only for ranks that are processes, as `dump_on`.
  virtual void add_neighbour(int /*rank*/, const FlightTape& /*tape*/) {}
  /// When `event` (an eventfd) is signalled, the watch's thread calls `dump` with the recorded calls.
  virtual void dump_on(int /*event*/, std::function<void(const std::vector<FlightRecord>&)> /*dump*/) {}

  /// Any thread may call `on_failure`, at most once, when there is a failure, and `attach` itself does if
  /// there is one already; it must be quick. `recorder` must live until `detach`.
  virtual void attach(const FlightRecorder& recorder, std::function<void()> on_failure) = 0;
  /// `on_failure` is not called after this.
  virtual void detach() = 0;

  [[nodiscard]] virtual bool failed() const noexcept = 0;
  /// The first failure that this rank knows of. Call only if `failed`.
  [[nodiscard]] virtual JobFailure failure() const = 0;
  /// Tells all ranks of this rank's failure, unless the job has failed already.
  virtual void announce(const JobFailure& failure) = 0;
  /// Called after a failure, once this rank's collectives have stopped. `waits_for`: the messages they waited
  /// for.
  virtual void stopped(const std::string& waits_for) = 0;
  /// Call after a failure: waits for the other ranks' reports, for a bounded time.
  [[nodiscard]] virtual ExitReport report() = 0;
  /// Whether rank 0 writes the job's report, so that this rank need not.
  [[nodiscard]] virtual bool is_reported_by_root() const { return false; }

  /// Names what the rank is doing, for reports; empty for nothing special. Returns the previous name.
  virtual std::string set_scope(std::string scope) = 0;
  /// A normal exit: the end of this rank is no failure afterwards.
  virtual void leave() noexcept = 0;
};

struct WatchedRank {
  std::string host;
  const FlightRecorder* recorder = nullptr;
  std::vector<FlightRecord> records = {};  ///< Copied from the recorder in `detach`.
  std::function<void()> on_failure = nullptr;
  std::string scope = {};
  std::string waits_for = {};
  bool has_stopped = false;

  void attach(const FlightRecorder& of, std::function<void()> then) {
    recorder = &of;
    on_failure = std::move(then);
  }
  void detach() {
    records = calls();
    recorder = nullptr;
    on_failure = nullptr;
  }
  [[nodiscard]] std::vector<FlightRecord> calls() const {
    return recorder == nullptr ? records : recorder->records();
  }
  [[nodiscard]] RankReport report(int rank, std::int64_t pid, const JobFailure& failure) const;
};

/// Makes the watches of ranks that are threads of this process, indexed by rank. `hosts`: the name of each
/// rank's host.
std::vector<std::shared_ptr<Watch>> thread_watches(const std::vector<std::string>& hosts);

}  // namespace ddl::collectives
