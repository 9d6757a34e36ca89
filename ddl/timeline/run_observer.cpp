#include "ddl/timeline/run_observer.hpp"

#include <fmt/format.h>

#include <exception>
#include <numeric>
#include <utility>

#include "collectives/communicator/request.hpp"
#include "ddl/timeline/gather_texts.hpp"
#include "ddl/timeline/run_summary.hpp"
#include "ddl/timeline/trace_file.hpp"
#include "ddl/timeline/trace_text.hpp"

namespace ddl {
namespace {

std::vector<int> clocks_of(const topology::RankMap& map, bool one_process) {
  std::vector<int> result;
  for (int rank = 0; rank < map.ranks(); ++rank) {
    result.push_back(one_process ? 0 : map.ranks_of(map.host_of(rank)).front());
  }
  return result;
}

}  // namespace

std::unique_ptr<RunObserver> RunObserver::if_wanted(const ContextOptions& options, bool summary, int rank,
                                                    const topology::RankMap& map, bool one_process) {
  if (options.timeline.empty() && options.dump_iterations == 0 && !summary) return nullptr;
  Settings settings{.timeline = options.timeline,
                    .events = options.timeline_events,
                    .summary = summary,
                    .uses_clocks = !options.timeline.empty() || options.dump_iterations > 0,
                    .rank = rank,
                    .hosts = {},
                    .clock_of = clocks_of(map, one_process)};
  for (int r = 0; r < map.ranks(); ++r) settings.hosts.push_back(map.short_name(map.host_of(r)));
  return std::make_unique<RunObserver>(std::move(settings));
}

RunObserver::RunObserver(Settings settings)
    : settings_(std::move(settings)),
      recorder_(std::make_shared<collectives::RunRecorder>(
          collectives::RunRecorder::Settings{.keeps_events = !settings_.timeline.empty(),
                                             .events = settings_.events,
                                             .ranks = static_cast<int>(settings_.hosts.size())})),
      clock_(settings_.clock_of) {}

RunObserver::Part RunObserver::part() {
  ticks_.look();
  const collectives::RunRecorder::Recording recording = recorder_->recording();
  TraceSource source{
      .rank = settings_.rank,
      .host = host_of(settings_.rank),
      .clock_error = clock_.error(),
      .plans = recorder_->settled_statistics().plans(),
      .of_ticks = [this](std::uint64_t ticks) { return clock_.job_time(ticks_.nanoseconds(ticks)); },
      .of_clock = [this](std::int64_t own) { return clock_.job_time(own); }};
  Part result{.text = trace_text(recording, source), .dropped = static_cast<std::int64_t>(recording.dropped)};
  for (const auto& thread : recording.threads) result.events += static_cast<std::int64_t>(thread.size());
  return result;
}

void RunObserver::write_trace_of_all(collectives::CommunicatorImpl& communicator, Log& log) {
  const Part own = part();
  const auto total = [&](std::int64_t value) {
    const std::vector<std::int64_t> all = all_values(communicator, value);
    return std::accumulate(all.begin(), all.end(), std::int64_t{0});
  };
  const std::int64_t events = total(own.events);
  const std::int64_t dropped = total(own.dropped);
  write_trace(communicator, settings_.timeline, own.text);
  log.info(fmt::format("timeline: {} events of {} ranks in '{}'", events, communicator.size(),
                       settings_.timeline));
  if (dropped > 0) {
    log.warning(fmt::format(
        "timeline: {} older events of all ranks together were dropped: of each thread the newest {} "
        "are kept; DDL_TIMELINE_EVENTS sets how many",
        dropped, settings_.events));
  }
}

void RunObserver::finish(collectives::CommunicatorImpl& communicator, Log& log) noexcept {
  try {
    communicator.job().engine().drain();
    {
      const collectives::Job::PausedDeadline paused(communicator.job());
      communicator.run(collectives::barrier_request());
    }
    if (settings_.summary) summarise(communicator, *recorder_, log);
    if (settings_.timeline.empty() || std::exchange(saved_, true)) return;
    compare_clocks(communicator);
    write_trace_of_all(communicator, log);
  } catch (const std::exception& error) {
    log.error(fmt::format("the timeline or the summary of the run is missing: {}", error.what()));
  }
}

void RunObserver::save_alone(Log& log) noexcept {
  if (settings_.timeline.empty() || std::exchange(saved_, true)) return;
  try {
    write_trace_alone(part_of_trace(settings_.timeline, settings_.rank), part().text);
  } catch (const std::exception& error) {
    log.error(fmt::format("this rank's part of the timeline is missing: {}", error.what()));
  }
}

}  // namespace ddl
