#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/timeline/run_recorder.hpp"

namespace ddl {

/// What a rank's part of a trace needs to know besides events.
struct TraceSource {
  int rank = 0;
  std::string host;
  std::int64_t clock_error = 0;                         ///< Nanoseconds.
  std::vector<collectives::PlanFigures> plans;          ///< As events number them, from 1 on.
  std::function<std::int64_t(std::uint64_t)> of_ticks;  ///< The job's time in nanoseconds.
  std::function<std::int64_t(std::int64_t)> of_clock;   ///< The same.
};

// A trace is `trace_begin`, then `trace_text` of each rank, then `trace_end`: JSON in the Trace Event Format.
std::string trace_begin();
std::string trace_end();
/// A line for each event, with a comma at its end.
std::string trace_text(const collectives::RunRecorder::Recording& recording, const TraceSource& source);

}  // namespace ddl
