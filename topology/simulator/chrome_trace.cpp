// Writes a simulation in the Trace Event Format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "ddl/topology/simulator.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

constexpr std::array<std::string_view, 3> direction_names = {"send", "receive", "local"};
constexpr std::size_t most_lanes = 1'000'000;  // of a rank in one direction; keeps thread ids apart

std::size_t direction_of(StepKind kind) { return kind == StepKind::send ? 0 : is_receive(kind) ? 1 : 2; }

std::string phase_name(std::span<const Phase> phases, std::size_t phase) {
  if (phase >= phases.size()) return fmt::format("phase {}", phase);
  std::string kind(to_string(phases[phase].kind));
  std::ranges::replace(kind, '_', '-');
  return fmt::format("{} {}", kind, phases[phase].dimension);
}

std::string end_of_name(const Step& step) {
  if (is_local(step.kind)) return std::string(to_string(step.kind));
  return fmt::format("{} {}", step.kind == StepKind::send ? "->" : "<-", step.peer);
}

const Step& step_of(const Schedule& schedule, const SimulatedEvent& event) {
  const auto rank = as_index(event.rank);
  if (event.rank < 0 || rank >= schedule.ranks.size() || event.step >= schedule.ranks[rank].steps.size()) {
    refuse("chrome_trace: found step {} of rank {}, expected the schedule that was simulated", event.step,
           event.rank);
  }
  return schedule.ranks[rank].steps[event.step];
}

class Trace {
 public:
  Trace(const Schedule& schedule, std::span<const Phase> phases) : schedule_(schedule), phases_(phases) {}

  /// Adds the events of one rank. Viewers show slices of a track correctly only if they follow one another or
  /// nest, so events that overlap are spread over several lanes, each with the time at which it becomes free.
  void add_rank(std::vector<SimulatedEvent> events) {
    const int rank = events.front().rank;
    std::ranges::stable_sort(events, {}, &SimulatedEvent::start_us);
    std::array<std::vector<double>, 3> lanes;
    for (const SimulatedEvent& event : events) {
      const Step& step = step_of(schedule_, event);
      const std::size_t direction = direction_of(step.kind);
      std::vector<double>& ends = lanes[direction];
      const auto free = std::ranges::find_if(ends, [&](double end) { return end <= event.start_us; });
      const auto lane = as_index(free - ends.begin());
      ends.resize(std::max(ends.size(), lane + 1));
      ends[lane] = event.end_us;
      const std::string phase = phase_name(phases_, step.phase);
      add(R"({{"name":"{} chunk {} {}","cat":"{}","ph":"X","ts":{:.6f},"dur":{:.6f},)"
          R"("pid":{},"tid":{},"args":{{"step":{},"elements":{}}}}})",
          phase, step.chunk, end_of_name(step), phase, event.start_us, event.end_us - event.start_us, rank,
          direction * most_lanes + lane, event.step, step.size());
    }
    add(R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"rank {0}"}}}})", rank);
    add(R"({{"name":"process_sort_index","ph":"M","pid":{0},"args":{{"sort_index":{0}}}}})", rank);
    for (std::size_t direction = 0; direction < lanes.size(); ++direction) {
      for (std::size_t lane = 0; lane < lanes[direction].size(); ++lane) {
        const std::size_t thread = direction * most_lanes + lane;
        add(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", rank, thread,
            direction_names[direction]);
        add(R"({{"name":"thread_sort_index","ph":"M","pid":{0},"tid":{1},"args":{{"sort_index":{1}}}}})",
            rank, thread);
      }
    }
  }

  std::string finish() {
    return R"({"displayTimeUnit":"ns","traceEvents":[)"
           "\n" +
           fmt::to_string(text_) + "\n]}\n";
  }

 private:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (text_.size() > 0) text_.append(std::string_view(",\n"));
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  const Schedule& schedule_;
  std::span<const Phase> phases_;
  fmt::memory_buffer text_;
};

}  // namespace

std::string chrome_trace(const Schedule& schedule, const Simulation& simulation,
                         std::span<const Phase> phases) {
  const auto& events = simulation.events;
  if (events.empty() && simulation.total_us > 0) {
    refuse(
        "chrome_trace: found a simulation without events, expected one with "
        "SimulationOptions::keep_events");
  }
  Trace trace(schedule, phases);
  for (auto first = events.begin(); first != events.end();) {
    const auto last = std::find_if(first, events.end(),
                                   [&](const SimulatedEvent& event) { return event.rank != first->rank; });
    trace.add_rank({first, last});
    first = last;
  }
  return trace.finish();
}

}  // namespace ddl::topology
