#include "collectives/timeline/run_recorder.hpp"

namespace ddl::collectives {
namespace {

constexpr std::size_t most_names = 1 << 16;
constexpr std::size_t most_tracks = 1 << 10;

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

constinit thread_local RunRecorder::Found RunRecorder::found_last_;

RunRecorder::RunRecorder(const Settings& settings)
    : settings_(settings),
      id_(next_id()),
      statistics_(settings.ranks),
      names_(most_names, "other names"),
      tracks_(most_tracks, "other") {}

RunRecorder::ThreadEvents* RunRecorder::find_own() {
  const auto find = [&]() -> ThreadEvents* {
    const std::lock_guard lock(mutex_);
    for (ThreadEvents& events : threads_) {
      if (events.thread == std::this_thread::get_id()) return &events;
    }
    if (threads_.size() == most_threads) return nullptr;
    return &threads_.emplace_back(std::this_thread::get_id(), settings_.events);
  };
  found_last_ = {id_, find()};
  return found_last_.events;
}

std::uint32_t RunRecorder::name(std::string_view text) {
  ThreadEvents* const events = settings_.keeps_events ? own() : nullptr;
  return number(events == nullptr ? nullptr : &events->names, names_, text);
}

std::uint16_t RunRecorder::track(std::string_view text) {
  ThreadEvents* const events = settings_.keeps_events ? own() : nullptr;
  return static_cast<std::uint16_t>(number(events == nullptr ? nullptr : &events->tracks, tracks_, text));
}

std::uint32_t RunRecorder::number(NumberByName* known, NameTable& all, std::string_view text) {
  text = text.substr(0, longest_name);
  if (known == nullptr) return all.number(text);
  if (const auto found = known->find(text); found != known->end()) return found->second;
  const std::uint32_t number = all.number(text);
  if (number != 0) known->emplace(text, number);
  return number;
}

RunRecorder::Recording RunRecorder::recording() const {
  Recording result;
  const std::lock_guard lock(mutex_);
  result.dropped = without_room_.load(std::memory_order_relaxed);
  for (const ThreadEvents& thread : threads_) {
    EventRing::Kept kept = thread.ring.kept();
    result.dropped += kept.dropped;
    result.threads.push_back(std::move(kept.events));
  }
  result.names = names_.names();
  result.tracks = tracks_.names();
  return result;
}

}  // namespace ddl::collectives
