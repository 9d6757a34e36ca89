#include "topology/simulator/critical_path.hpp"

#include <algorithm>

namespace ddl::topology {
namespace {

/// By step: the earlier steps that it waits for, ascending.
using Before = std::vector<std::vector<std::uint32_t>>;

Before before_of(const Dependencies& dependencies) {
  Before before(dependencies.steps());
  for (std::uint32_t i = 0; i < before.size(); ++i) {
    for (const std::uint32_t later : dependencies.after(i)) before[later].push_back(i);
  }
  return before;
}

class Walk {
 public:
  Walk(const StepNumbers& steps, const Streams& streams, const SharedDependencies& dependencies,
       std::span<const double> start, std::span<const double> end, std::span<const double> joined)
      : steps_(steps),
        streams_(streams),
        dependencies_(dependencies),
        start_(start),
        end_(end),
        joined_(joined),
        before_(dependencies.tables()) {}

  std::vector<SimulatedEvent> path() {
    std::vector<SimulatedEvent> result;
    if (end_.empty()) return result;
    const auto last = std::ranges::max_element(end_);
    double end = *last;
    for (auto step = static_cast<StepId>(last - end_.begin()); step != no_step; step = cause_of(step)) {
      result.push_back({steps_.rank(step), steps_.index(step), start_[step], end});
      end = start_[step];
    }
    std::ranges::reverse(result);
    return result;
  }

 private:
  StepId dependency(StepId step, double time) {
    Before& before = before_[dependencies_.table(steps_.rank(step))];
    if (before.empty()) before = before_of(dependencies_.of(steps_.rank(step)));
    const StepId first = step - steps_.index(step);
    for (const std::uint32_t earlier : before[steps_.index(step)]) {
      if (end_[first + earlier] == time) return first + earlier;
    }
    return no_step;
  }

  /// The rank's last send before `time`: the one that was being issued until then.
  [[nodiscard]] StepId issue_before(std::size_t rank, double time) const {
    StepId latest = no_step;
    for (StepId step = steps_.first(rank); step < steps_.first(rank + 1); ++step) {
      if (steps_[step].kind != StepKind::send || start_[step] >= time) continue;
      if (latest == no_step || start_[step] > start_[latest]) latest = step;
    }
    return latest;
  }

  StepId cause_of(StepId effect) {
    const double time = start_[effect];
    if (time <= 0) return no_step;
    if (streams_.transfer(effect) == Streams::none) return dependency(effect, time);
    const Stream& stream = streams_.all()[streams_.stream(effect)];
    const StepId begin = steps_.begin_of_run(streams_.receive(streams_.transfer(effect)));
    const StepId end = steps_.end_of_run(begin);
    // The transfers of a run start together.
    for (StepId step = begin; step < end; ++step) {
      const std::uint32_t transfer = streams_.transfer(step);
      if (transfer == Streams::none || start_[step] != time) continue;
      if (const StepId cause = cause_of_transfer(transfer, time); cause != no_step) return cause;
    }
    const auto has_joined = [&](int rank) { return joined_[as_index(rank)] == time; };
    for (StepId step = begin; step < end; ++step) {
      const std::uint32_t of = streams_.stream(step);
      if (of != Streams::none && has_joined(streams_.all()[of].from)) return no_step;
    }
    if (has_joined(stream.to)) return no_step;
    return issue_before(as_index(stream.from), time);
  }

  StepId cause_of_transfer(std::uint32_t transfer, double time) {
    const StepId send = streams_.send(transfer);
    for (const StepId own : {send, streams_.receive(transfer)}) {
      if (const StepId cause = dependency(own, time); cause != no_step) return cause;
    }
    if (transfer == streams_.all()[streams_.stream(send)].first) return no_step;
    const StepId previous = streams_.send(transfer - 1);
    return end_[previous] == time ? previous : no_step;
  }

  const StepNumbers& steps_;
  const Streams& streams_;
  const SharedDependencies& dependencies_;
  std::span<const double> start_;
  std::span<const double> end_;
  std::span<const double> joined_;
  std::vector<Before> before_;  // by table; empty until needed
};

}  // namespace

std::vector<SimulatedEvent> critical_path(const StepNumbers& steps, const Streams& streams,
                                          const SharedDependencies& dependencies,
                                          std::span<const double> start, std::span<const double> end,
                                          std::span<const double> joined) {
  return Walk(steps, streams, dependencies, start, end, joined).path();
}

}  // namespace ddl::topology
