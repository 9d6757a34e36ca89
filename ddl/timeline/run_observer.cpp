#include "ddl/timeline/run_observer.hpp"

#include <algorithm>
#include <numeric>

#include "ddl/timeline.hpp"
#include "ddl/timeline/run_summary.hpp"
#include "ddl/timeline/trace.hpp"

namespace ddl {
namespace {

/// For each rank, the lowest rank that reads the same clock.
std::vector<int> clocks_of(const topology::RankMap& map, bool one_process) {
  std::vector<int> result;
  for (int rank = 0; rank < map.ranks(); ++rank) {
    result.push_back(one_process ? 0 : map.ranks_of(map.host_of(rank)).front());
  }
  return result;
}

using collectives::Event;
using collectives::RunRecorder;
using collectives::Ticks;

collectives::NamedNumbers numbers_of(RunRecorder& recorder,
                                     std::initializer_list<Timeline::Argument> arguments) {
  collectives::NamedNumbers numbers;
  for (const Timeline::Argument& argument : arguments) {
    if (numbers.count == collectives::NamedNumbers::most) break;
    numbers.names[numbers.count] = recorder.name(argument.name);
    numbers.values[numbers.count++] = argument.value;
  }
  return numbers;
}

}  // namespace

std::unique_ptr<RunObserver> RunObserver::if_wanted(const ContextOptions& options, bool summary, int rank,
                                                    const topology::RankMap& map, bool one_process) {
  if (options.timeline.empty() && options.dump_iterations == 0 && !summary) return nullptr;
  return std::make_unique<RunObserver>(options, summary, rank, map, one_process);
}

RunObserver::RunObserver(const ContextOptions& options, bool summary, int rank, const topology::RankMap& map,
                         bool one_process)
    : timeline_(options.timeline),
      events_(options.timeline_events),
      summary_(summary),
      dumps_(options.dump_iterations > 0),
      uses_clocks_(!options.timeline.empty() || options.dump_iterations > 0),
      rank_(rank),
      map_(map),
      recorder_(std::make_shared<collectives::RunRecorder>(collectives::RunRecorder::Settings{
          .keeps_events = !timeline_.empty(), .events = events_, .ranks = map.ranks()})),
      clock_(clocks_of(map, one_process)) {}

RunObserver::Part RunObserver::part() {
  ticks_.look();
  const collectives::RunRecorder::Recording recording = recorder_->recording();
  TraceSource source{
      .rank = rank_,
      .host = host_of(rank_),
      .clock_error = clock_.error(),
      .plans = recorder_->statistics().plans(),
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
  write_trace(communicator, timeline_, own.text);
  log.info(fmt::format("timeline: {} events of {} ranks in '{}'", events, communicator.size(), timeline_));
  if (dropped > 0) {
    log.warning(fmt::format(
        "timeline: {} older events of all ranks together were dropped: of each thread the newest {} "
        "are kept; DDL_TIMELINE_EVENTS sets how many",
        dropped, events_));
  }
}

/// An error that only rank 0 has must not keep it from the collectives that follow, so it is logged instead.
void RunObserver::summarise_or_log(collectives::CommunicatorImpl& communicator, Log& log) {
  try {
    summarise(communicator, *recorder_, log);
  } catch (const std::exception& error) {
    if (communicator.job().failed()) throw;
    log.error(fmt::format("the summary of the run is missing: {}", error.what()));
  }
}

void RunObserver::finish(collectives::CommunicatorImpl& communicator, Log& log) noexcept {
  try {
    communicator.job().engine().drain();
    {
      const collectives::Job::PausedDeadline paused(communicator.job());
      communicator.run(collectives::barrier_request());
    }
    if (dumps_ && !has_reducer_) {
      log.warning("-dump_iter has printed nothing: it needs steps of a GradientReducer, and there was none");
    }
    if (summary_) summarise_or_log(communicator, log);
    if (timeline_.empty() || std::exchange(saved_, true)) return;
    compare_clocks(communicator);
    write_trace_of_all(communicator, log);
  } catch (const std::exception& error) {
    log.error(fmt::format("the timeline or the summary of the run is missing: {}", error.what()));
  }
}

void RunObserver::save_alone(Log& log) noexcept {
  if (timeline_.empty() || std::exchange(saved_, true)) return;
  try {
    write_trace_alone(part_of_trace(timeline_, rank_), part().text);
  } catch (const std::exception& error) {
    log.error(fmt::format("this rank's part of the timeline is missing: {}", error.what()));
  }
}

Timeline::Timeline(std::shared_ptr<RunRecorder> recorder) : recorder_(std::move(recorder)) {
  if (recorder_ && !recorder_->keeps_events()) recorder_.reset();
}
Timeline::~Timeline() = default;

Timeline::Scope::Scope(Scope&&) noexcept = default;

void Timeline::Scope::record() noexcept {
  std::exchange(recorder_, nullptr)->add({begin_, Ticks::now(), name_, track_, Event::Kind::span, false, {}});
}

Timeline::Scope Timeline::begin(std::string_view name, std::string_view track) {
  Scope scope;
  scope.recorder_ = recorder_;
  scope.name_ = recorder_->name(name);
  scope.track_ = recorder_->track(track);
  scope.begin_ = Ticks::now();
  return scope;
}

void Timeline::add_instant(std::string_view track, std::string_view name,
                           std::initializer_list<Argument> arguments) {
  const std::uint64_t now = Ticks::now();
  recorder_->add({now, now, recorder_->name(name), recorder_->track(track), Event::Kind::instant, false,
                  numbers_of(*recorder_, arguments)});
}

void Timeline::add_measured(std::string_view track, std::string_view name, std::int64_t begin_ns,
                            std::int64_t end_ns, std::initializer_list<Argument> arguments) {
  const auto begin = static_cast<std::uint64_t>(begin_ns);
  const auto end = static_cast<std::uint64_t>(std::max(begin_ns, end_ns));
  recorder_->add({begin, end, recorder_->name(name), recorder_->track(track), Event::Kind::span, true,
                  numbers_of(*recorder_, arguments)});
}

std::int64_t Timeline::now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(collectives::Clock::now().time_since_epoch())
      .count();
}

}  // namespace ddl
