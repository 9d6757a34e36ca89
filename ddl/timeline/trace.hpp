#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/timeline/run_recorder.hpp"

namespace ddl {

/// Assigns slices to rows. A viewer shows the slices of a row correctly only if they are disjoint or nested,
/// so each slice goes to the first row with room for it. Slices must come ordered by begin, and those with
/// the same begin longest first.
class Rows {
 public:
  /// `nest`: whether a slice may lie inside another slice of its row.
  explicit Rows(bool nest) : nest_(nest) {}

  std::size_t row_for(std::int64_t begin, std::int64_t end) {
    for (std::size_t i = 0; i < open_.size(); ++i) {
      std::vector<std::int64_t>& ends = open_[i];
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      if (!ends.empty() && !(nest_ && end <= ends.back())) continue;
      ends.push_back(end);
      return i;
    }
    open_.push_back({end});
    return open_.size() - 1;
  }
  [[nodiscard]] std::size_t size() const noexcept { return open_.size(); }

 private:
  bool nest_;
  std::vector<std::vector<std::int64_t>> open_;  // by row: ends of open slices, the innermost last
};

/// The inputs of a rank's part of a trace besides events.
struct TraceSource {
  int rank = 0;
  std::string host;
  std::int64_t clock_error = 0;                 ///< Nanoseconds.
  std::vector<collectives::PlanFigures> plans;  ///< Events refer to them by index + 1; 0 is no plan.
  std::function<std::int64_t(std::uint64_t)>
      of_ticks;                                        ///< Converts `Ticks` to the job's time in nanoseconds.
  std::function<std::int64_t(std::int64_t)> of_clock;  ///< Converts `Clock` nanoseconds to the job's time.
};

/// A rank's part of a trace: a line for each event, ending with a comma.
std::string trace_text(const collectives::RunRecorder::Recording& recording, const TraceSource& source);

/// Throws `invalid_argument` if the file cannot be written. Does nothing for an empty name.
void require_writable_trace(const std::string& name);

/// The name of a rank's part: "trace.rank3.json" for "trace.json".
std::filesystem::path part_of_trace(const std::filesystem::path& name, int rank);

/// Writes a trace of all ranks' texts on rank 0. Collective. Throws `io` on rank 0 after the collective part.
void write_trace(collectives::CommunicatorImpl& communicator, const std::string& name, std::string_view text);
/// Writes a trace of one rank's text.
void write_trace_alone(const std::filesystem::path& name, std::string_view text);

}  // namespace ddl
