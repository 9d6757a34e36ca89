#include "ddl/timeline.hpp"

#include <algorithm>
#include <utility>

#include "collectives/network/network.hpp"
#include "collectives/timeline/run_recorder.hpp"

namespace ddl {
namespace {

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

Timeline::Timeline(std::shared_ptr<RunRecorder> recorder) : recorder_(std::move(recorder)) {
  if (recorder_ && !recorder_->keeps_events()) recorder_.reset();
}
Timeline::~Timeline() = default;

Timeline::Scope::Scope(Scope&& other) noexcept
    : recorder_(std::exchange(other.recorder_, nullptr)),
      begin_(other.begin_),
      name_(other.name_),
      track_(other.track_) {}

void Timeline::Scope::record() noexcept {
  RunRecorder* const recorder = std::exchange(recorder_, nullptr);
  recorder->add({begin_, Ticks::now(), name_, track_, Event::Kind::span, false, {}});
}

Timeline::Scope Timeline::begin(std::string_view name, std::string_view track) {
  Scope scope;
  scope.recorder_ = recorder_.get();
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
