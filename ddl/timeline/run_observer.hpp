#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/timeline/run_recorder.hpp"
#include "ddl/context.hpp"
#include "ddl/log.hpp"
#include "ddl/timeline/clocks.hpp"

namespace ddl {

/// Records a rank's run, and writes the trace and the summary at its end. Also holds the clock for what
/// gradient reducers print meanwhile. Used by the trainer's thread.
class RunObserver {
 public:
  /// Null if no option needs a recording. `summary`, the same on all ranks: log a summary at the end.
  static std::unique_ptr<RunObserver> if_wanted(const ContextOptions& options, bool summary, int rank,
                                                const topology::RankMap& map, bool one_process);

  RunObserver(const ContextOptions& options, bool summary, int rank, const topology::RankMap& map,
              bool one_process);

  [[nodiscard]] const std::shared_ptr<collectives::RunRecorder>& recorder() const noexcept {
    return recorder_;
  }
  [[nodiscard]] std::string host_of(int rank) const { return map_.short_name(map_.host_of(rank)); }

  /// Collective; sends messages only if ranks read different clocks.
  void compare_clocks(collectives::CommunicatorImpl& communicator) {
    if (uses_clocks_) clock_.compare(communicator);
  }
  [[nodiscard]] const JobClock& clock() const noexcept { return clock_; }

  /// Tells that a gradient reducer exists, which prints the lines of -dump_iter.
  void note_reducer() noexcept { has_reducer_ = true; }

  /// Writes the trace and logs the summary at the end of a job without failure. Collective. Logs errors.
  void finish(collectives::CommunicatorImpl& communicator, Log& log) noexcept;
  /// Writes this rank's part of the trace at the end of a failed job, once. Not collective. Logs errors.
  void save_alone(Log& log) noexcept;

 private:
  void summarise_or_log(collectives::CommunicatorImpl& communicator, Log& log);
  void write_trace_of_all(collectives::CommunicatorImpl& communicator, Log& log);
  struct Part {
    std::string text;
    std::int64_t dropped = 0;
    std::int64_t events = 0;
  };
  Part part();

  const std::string timeline_;  // empty: no trace
  const std::size_t events_;
  const bool summary_;
  const bool dumps_;
  bool has_reducer_ = false;
  const bool uses_clocks_;  // for the trace or for -dump_iter
  const int rank_;
  const topology::RankMap map_;
  std::shared_ptr<collectives::RunRecorder> recorder_;
  TickClock ticks_;
  JobClock clock_;
  bool saved_ = false;
};

}  // namespace ddl
