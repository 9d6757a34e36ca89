#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/watch/exit_report.hpp"
#include "collectives/watch/flight_recorder.hpp"

namespace ddl::collectives {

/// Tells a rank that the job fails, and why, wherever its threads are; tells the others when it fails itself;
/// and gathers how far each rank had come. The first failure of the job is the one that counts. Any thread.
class Watch {
 public:
  /// How long a rank that was told has to stop, and how long the report takes at most.
  static constexpr auto time_to_stop = std::chrono::milliseconds(100);
  static constexpr auto time_to_report = std::chrono::milliseconds(300);

  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  virtual ~Watch() = default;

  /// `on_failure` is called once there is a failure, by any thread, and must be quick; at once if there is
  /// one already. `recorder` lives until `detach`.
  virtual void attach(const FlightRecorder& recorder, std::function<void()> on_failure) = 0;
  /// `on_failure` is not called any more.
  virtual void detach() = 0;

  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// The first failure that this rank knows of. Only if `failed`.
  [[nodiscard]] virtual JobFailure failure() const = 0;
  /// This rank gives up. Only the first failure is passed on.
  virtual void announce(const JobFailure& failure) = 0;
  /// After a failure: this rank's collectives have stopped, while they waited for this.
  virtual void stopped(const std::string& waits_for) = 0;
  /// After a failure: waits for what the others have to say, not longer than it may take.
  [[nodiscard]] virtual ExitReport report() = 0;
  /// Whether rank 0 writes reports that cover the job, for this rank too.
  [[nodiscard]] virtual bool is_reported_by_root() const { return false; }

  /// What the rank is doing, for reports; empty: nothing that has a name. Returns what it was.
  virtual std::string set_scope(std::string scope) = 0;
  /// In order: this rank's end is no failure from here on.
  virtual void leave() noexcept = 0;

 protected:
  std::atomic<bool> failed_ = false;
};

/// What a watch knows of its own rank.
struct WatchedRank {
  std::string host;
  const FlightRecorder* recorder = nullptr;
  std::vector<FlightRecord> records = {};  ///< Once the recorder is gone.
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

/// The watches of ranks that are threads of this process, by rank. `hosts`: the name of each rank's host.
std::vector<std::shared_ptr<Watch>> thread_watches(const std::vector<std::string>& hosts);

}  // namespace ddl::collectives
