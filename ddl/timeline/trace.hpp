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

/// A viewer shows the slices of a row right only where they follow one another or nest. Slices that overlap
/// are spread over several rows: each goes to the first that has room for it. They come by their begin, and
/// of those that begin together the longest first.
class Rows {
 public:
  /// `nest`: whether a slice may lie inside of another one of its row.
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
  std::vector<std::vector<std::int64_t>> open_;  // by row: ends of slices that are open, the innermost last
};

/// What a rank's part of a trace needs to know besides events.
struct TraceSource {
  int rank = 0;
  std::string host;
  std::int64_t clock_error = 0;                         ///< Nanoseconds.
  std::vector<collectives::PlanFigures> plans;          ///< As events number them, from 1 on.
  std::function<std::int64_t(std::uint64_t)> of_ticks;  ///< The job's time in nanoseconds.
  std::function<std::int64_t(std::int64_t)> of_clock;   ///< The same.
};

/// A rank's part of a trace: a line for each event, with a comma at its end.
std::string trace_text(const collectives::RunRecorder::Recording& recording, const TraceSource& source);

/// Throws `invalid_argument` if no file can be written there. An empty name asks for nothing.
void require_writable_trace(const std::string& name);

/// The name of one rank's own part: "trace.rank3.json" for "trace.json".
std::filesystem::path part_of_trace(const std::filesystem::path& name, int rank);

/// Rank 0 writes a trace of all ranks' texts. Collective. Throws `io` on rank 0, once all texts have come.
void write_trace(collectives::CommunicatorImpl& communicator, const std::string& name, std::string_view text);
/// A trace of one rank's text.
void write_trace_alone(const std::filesystem::path& name, std::string_view text);

}  // namespace ddl
