#include "topology/simulator/critical_path.hpp"

#include <algorithm>
#include <optional>

namespace ddl::topology {
namespace {

/// The earlier steps that each step waits for.
class Before {
 public:
  explicit Before(const Dependencies& dependencies) {
    const std::size_t steps = dependencies.steps();
    begin_.reserve(steps + 1);
    begin_.push_back(0);
    for (std::size_t i = 0; i < steps; ++i) {
      begin_.push_back(begin_.back() + dependencies.number_before(i));
    }
    steps_.resize(begin_.back());
    std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
    for (std::uint32_t i = 0; i < steps; ++i) {
      for (const std::uint32_t later : dependencies.after(i)) steps_[next[later]++] = i;
    }
  }
  [[nodiscard]] std::span<const std::uint32_t> of(std::uint32_t step) const {
    return std::span(steps_).subspan(begin_[step], begin_[step + 1] - begin_[step]);
  }

 private:
  std::vector<std::uint32_t> begin_;
  std::vector<std::uint32_t> steps_;
};

class Walk {
 public:
  Walk(const Schedule& schedule, const Streams& streams, const SharedDependencies& dependencies,
       std::span<const double> start, std::span<const double> end, std::span<const double> joined)
      : schedule_(schedule),
        streams_(streams),
        dependencies_(dependencies),
        start_(start),
        end_(end),
        joined_(joined),
        before_(dependencies.tables()) {}

  std::vector<SimulatedEvent> path() {
    std::vector<SimulatedEvent> result;
    auto next = last();
    while (next) {
      result.push_back(*next);
      next = cause_of(*next);
    }
    std::ranges::reverse(result);
    return result;
  }

 private:
  [[nodiscard]] std::uint32_t global(int rank, std::uint32_t step) const {
    return streams_.first_step(rank) + step;
  }
  [[nodiscard]] SimulatedEvent event(int rank, std::uint32_t step) const {
    const std::uint32_t at = global(rank, step);
    return {rank, step, start_[at], end_[at]};
  }

  [[nodiscard]] std::optional<SimulatedEvent> last() const {
    if (end_.empty()) return {};
    const auto at = static_cast<std::uint32_t>(std::ranges::max_element(end_) - end_.begin());
    int rank = 0;
    while (streams_.first_step(rank + 1) <= at) ++rank;
    return event(rank, at - streams_.first_step(rank));
  }

  std::optional<SimulatedEvent> dependency(int rank, std::uint32_t step, double time) {
    auto& before = before_[dependencies_.table(rank)];
    if (!before) before.emplace(dependencies_.of(rank));
    for (const std::uint32_t earlier : before->of(step)) {
      if (end_[global(rank, earlier)] == time) return event(rank, earlier);
    }
    return {};
  }

  /// The send that was issued right before, if one was being issued until `time`.
  [[nodiscard]] std::optional<SimulatedEvent> issue_before(int rank, double time) const {
    const auto& steps = schedule_.ranks[static_cast<std::size_t>(rank)].steps;
    std::optional<SimulatedEvent> latest;
    for (std::uint32_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind != StepKind::send) continue;
      const double start = start_[global(rank, i)];
      if (start < time && (!latest || start > latest->start_us)) latest = event(rank, i);
    }
    if (latest) latest->end_us = time;
    return latest;
  }

  std::optional<SimulatedEvent> cause_of(const SimulatedEvent& effect) {
    const double time = effect.start_us;
    if (time <= 0) return {};
    const std::uint32_t stream_index = streams_.of_step(global(effect.rank, effect.step));
    if (stream_index == Streams::none) return dependency(effect.rank, effect.step, time);
    const Stream& stream = streams_.all()[stream_index];
    const std::uint32_t receive = streams_.receive(transfer_of(stream, effect));
    const Program& program = schedule_.ranks[static_cast<std::size_t>(stream.to)];
    const std::size_t begin = program.begin_of_run(receive);
    // The transfers of a run start together.
    for (std::size_t step = begin; step < program.end_of_run(begin); ++step) {
      const std::uint32_t at = global(stream.to, static_cast<std::uint32_t>(step));
      if (streams_.of_step(at) == Streams::none || start_[at] != time) continue;
      if (auto cause = cause_of_transfer(stream.to, static_cast<std::uint32_t>(step), time)) return cause;
    }
    for (std::size_t step = begin; step < program.end_of_run(begin); ++step) {
      const std::uint32_t of = streams_.of_step(global(stream.to, static_cast<std::uint32_t>(step)));
      if (of == Streams::none) continue;
      if (joined_[static_cast<std::size_t>(streams_.all()[of].from)] == time) return {};
    }
    if (joined_[static_cast<std::size_t>(stream.to)] == time) return {};
    return issue_before(stream.from, time);
  }

  std::optional<SimulatedEvent> cause_of_transfer(int rank, std::uint32_t receive, double time) {
    const Stream& stream = streams_.all()[streams_.of_step(global(rank, receive))];
    const std::uint32_t transfer = transfer_of(stream, event(rank, receive));
    if (auto cause = dependency(stream.from, streams_.send(transfer), time)) return cause;
    if (auto cause = dependency(rank, receive, time)) return cause;
    if (transfer == stream.first) return {};
    const SimulatedEvent previous = event(stream.from, streams_.send(transfer - 1));
    return previous.end_us == time ? std::optional(previous) : std::nullopt;
  }

  [[nodiscard]] std::uint32_t transfer_of(const Stream& stream, const SimulatedEvent& event) const {
    const auto step_of = [&](std::uint32_t transfer) {
      return event.rank == stream.from ? streams_.send(transfer) : streams_.receive(transfer);
    };
    std::uint32_t low = stream.first;
    std::uint32_t high = stream.first + stream.transfers;
    while (high - low > 1) {
      const std::uint32_t middle = low + (high - low) / 2;
      (step_of(middle) <= event.step ? low : high) = middle;
    }
    return low;
  }

  const Schedule& schedule_;
  const Streams& streams_;
  const SharedDependencies& dependencies_;
  std::span<const double> start_;
  std::span<const double> end_;
  std::span<const double> joined_;
  std::vector<std::optional<Before>> before_;
};

}  // namespace

std::vector<SimulatedEvent> critical_path(const Schedule& schedule, const Streams& streams,
                                          const SharedDependencies& dependencies,
                                          std::span<const double> start, std::span<const double> end,
                                          std::span<const double> joined) {
  return Walk(schedule, streams, dependencies, start, end, joined).path();
}

}  // namespace ddl::topology
