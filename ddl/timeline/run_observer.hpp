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

/// What is kept of a rank's run, and what becomes of it: the trace, the summary at its end, and what is
/// printed while it goes on. Used by the trainer's thread.
class RunObserver {
 public:
  /// Null if nobody wants to know anything. `summary`: whether there is one at the end, the same on all
  /// ranks.
  static std::unique_ptr<RunObserver> if_wanted(const ContextOptions& options, bool summary, int rank,
                                                const topology::RankMap& map, bool one_process);

  RunObserver(const ContextOptions& options, bool summary, int rank, const topology::RankMap& map,
              bool one_process);

  [[nodiscard]] const std::shared_ptr<collectives::RunRecorder>& recorder() const noexcept {
    return recorder_;
  }
  [[nodiscard]] std::string host_of(int rank) const { return map_.short_name(map_.host_of(rank)); }

  /// Collective; costs something only where ranks read different clocks.
  void compare_clocks(collectives::CommunicatorImpl& communicator) {
    if (uses_clocks_) clock_.compare(communicator);
  }
  [[nodiscard]] const JobClock& clock() const noexcept { return clock_; }

  /// A gradient reducer prints what -dump_iter asks for.
  void note_reducer() noexcept { has_reducer_ = true; }

  /// The end of a job that has not failed: writes and prints. Collective. What goes wrong is logged.
  void finish(collectives::CommunicatorImpl& communicator, Log& log) noexcept;
  /// The end of one that has: writes this rank's part, once. What goes wrong is logged. Without other ranks.
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
  const bool uses_clocks_;  // for the trace, or for what is printed meanwhile
  const int rank_;
  const topology::RankMap map_;
  std::shared_ptr<collectives::RunRecorder> recorder_;
  TickClock ticks_;
  JobClock clock_;
  bool saved_ = false;
};

}  // namespace ddl
