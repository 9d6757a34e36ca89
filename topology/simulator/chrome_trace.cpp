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

enum class Direction : std::uint8_t { send, receive, local };
constexpr std::array<std::string_view, 3> direction_names = {"send", "receive", "local"};
constexpr std::size_t most_lanes = 1'000'000;  // of a rank in one direction; keeps thread ids apart

// Colour names that the viewers define.
constexpr std::array<std::string_view, 8> colours = {
    "thread_state_running", "rail_response", "thread_state_iowait",   "rail_animation",
    "thread_state_unknown", "rail_load",     "thread_state_runnable", "startup"};

Direction direction_of(StepKind kind) {
  if (kind == StepKind::send) return Direction::send;
  return is_receive(kind) ? Direction::receive : Direction::local;
}

std::string phase_name(std::span<const Phase> phases, int phase) {
  if (as_index(phase) >= phases.size()) return fmt::format("phase {}", phase);
  const Phase& known = phases[as_index(phase)];
  std::string kind(to_string(known.kind));
  std::ranges::replace(kind, '_', '-');
  return fmt::format("{} {}", kind, known.dimension);
}

std::string event_name(const std::string& phase, const Step& step) {
  const std::string what = fmt::format("{} chunk {}", phase, step.chunk);
  switch (direction_of(step.kind)) {
    case Direction::send:
      return fmt::format("{} -> {}", what, step.peer);
    case Direction::receive:
      return fmt::format("{} <- {}", what, step.peer);
    case Direction::local:
      break;
  }
  return fmt::format("{} {}", what, to_string(step.kind));
}

const Step& step_of(const Schedule& schedule, const SimulatedEvent& event) {
  const auto rank = as_index(event.rank);
  if (event.rank < 0 || rank >= schedule.ranks.size() || event.step >= schedule.ranks[rank].steps.size()) {
    refuse("chrome_trace: found step {} of rank {}, expected the schedule that was simulated", event.step,
           event.rank);
  }
  return schedule.ranks[rank].steps[event.step];
}

/// The times at which a rank's lanes in one direction become free. Viewers show slices of a track correctly
/// only if they follow one another or nest, so events that overlap are spread over several lanes.
using Lanes = std::vector<double>;

/// Takes the first free lane, or a new one.
std::size_t take_lane(Lanes& lanes, double start, double end) {
  const auto lane = std::ranges::find_if(lanes, [&](double free_from) { return free_from <= start; });
  const auto index = as_index(lane - lanes.begin());
  if (lane == lanes.end()) lanes.push_back(end);
  lanes[index] = end;
  return index;
}

class Trace {
 public:
  Trace(const Schedule& schedule, std::span<const Phase> phases) : schedule_(schedule) {
    for (int phase = 0; phase < 256; ++phase) phase_names_.push_back(phase_name(phases, phase));
  }

  /// Adds the events of one rank.
  void add_rank(std::span<const SimulatedEvent> events) {
    const int rank = events.front().rank;
    std::vector<const SimulatedEvent*> by_time;
    for (const SimulatedEvent& event : events) by_time.push_back(&event);
    std::ranges::stable_sort(by_time, {}, [](const SimulatedEvent* event) { return event->start_us; });
    std::array<Lanes, 3> lanes;
    for (const SimulatedEvent* event : by_time) {
      const Step& step = step_of(schedule_, *event);
      const auto direction = as_index(direction_of(step.kind));
      const std::size_t lane = take_lane(lanes[direction], event->start_us, event->end_us);
      add(R"({{"name":"{}","cat":"{}","cname":"{}","ph":"X","ts":{:.6f},"dur":{:.6f},)"
          R"("pid":{},"tid":{},"args":{{"step":{},"elements":{}}}}})",
          event_name(phase_names_[step.phase], step), phase_names_[step.phase],
          colours[step.phase % colours.size()], event->start_us, event->end_us - event->start_us, rank,
          thread(direction, lane), event->step, step.size());
    }
    add(R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"rank {0}"}}}})", rank);
    add(R"({{"name":"process_sort_index","ph":"M","pid":{0},"args":{{"sort_index":{0}}}}})", rank);
    for (std::size_t direction = 0; direction < lanes.size(); ++direction) {
      for (std::size_t lane = 0; lane < lanes[direction].size(); ++lane) {
        add(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", rank,
            thread(direction, lane), direction_names[direction]);
        add(R"({{"name":"thread_sort_index","ph":"M","pid":{0},"tid":{1},"args":{{"sort_index":{1}}}}})",
            rank, thread(direction, lane));
      }
    }
  }

  std::string finish() {
    return R"({"displayTimeUnit":"ns","traceEvents":[)"
           "\n" +
           fmt::to_string(text_) + "\n]}\n";
  }

 private:
  static std::size_t thread(std::size_t direction, std::size_t lane) { return direction * most_lanes + lane; }

  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (text_.size() > 0) text_.append(std::string_view(",\n"));
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  const Schedule& schedule_;
  std::vector<std::string> phase_names_;
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
