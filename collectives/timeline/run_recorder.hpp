#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/timeline/event_ring.hpp"
#include "collectives/timeline/run_statistics.hpp"

namespace ddl::collectives {

/// Records a rank's run: statistics, and events if they are wanted. Thread-safe.
///
/// Memory for events: the newest `events` of each thread, 64 bytes each, for at most 16 threads. Older
/// events, and those of further threads, are counted as dropped. Keeps 65,535 names of at most 200
/// characters.
class RunRecorder {
 public:
  struct Settings {
    bool keeps_events = false;
    std::size_t events = std::size_t{1} << 17;
    int ranks = 1;
  };
  static constexpr std::size_t most_threads = 16;
  static constexpr std::size_t longest_name = 200;

  explicit RunRecorder(const Settings& settings);

  [[nodiscard]] bool keeps_events() const noexcept { return settings_.keeps_events; }
  [[nodiscard]] RunStatistics& statistics() noexcept { return statistics_; }
  [[nodiscard]] const RunStatistics& statistics() const noexcept { return statistics_; }
  // These lock only for a name that the thread has not used before. Names beyond the limit become "other".
  std::uint32_t name(std::string_view text);
  std::uint16_t track(std::string_view text);
  void add(const Event& event) {
    if (!settings_.keeps_events) return;
    if (ThreadEvents* const events = own()) {
      events->ring.add(event);
    } else {
      without_room_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  struct Recording {
    std::vector<std::vector<Event>> threads;
    std::vector<std::string> names;   ///< By number.
    std::vector<std::string> tracks;  ///< By number.
    std::uint64_t dropped = 0;
  };
  [[nodiscard]] Recording recording() const;

 private:
  struct ThreadEvents {
    ThreadEvents(std::thread::id of, std::size_t events) : thread(of), ring(events) {}
    std::thread::id thread;
    EventRing ring;
    NumberByName names, tracks;
  };
  static std::uint32_t number(NumberByName* known, NameTable& all, std::string_view text);
  ThreadEvents* own() { return found_last_.recorder == id_ ? found_last_.events : find_own(); }
  ThreadEvents* find_own();

  /// The result of a thread's last lookup.
  struct Found {
    std::uint64_t recorder = 0;
    ThreadEvents* events = nullptr;
  };
  static thread_local constinit Found found_last_;

  const Settings settings_;
  const std::uint64_t id_;  // unique among all recorders of the process
  RunStatistics statistics_;
  NameTable names_, tracks_;
  std::atomic<std::uint64_t> without_room_ = 0;
  mutable std::mutex mutex_;
  std::deque<ThreadEvents> threads_;
};

/// Adds its lifetime to the waited time. `recorder` may be null.
class CountedWait {
 public:
  explicit CountedWait(RunRecorder* recorder) noexcept
      : recorder_(recorder), begin_(recorder == nullptr ? 0 : Ticks::now()) {}
  CountedWait& operator=(CountedWait&&) = delete;
  ~CountedWait() {
    if (recorder_ != nullptr) recorder_->statistics().waited(Ticks::now() - begin_);
  }

 private:
  RunRecorder* recorder_;
  std::uint64_t begin_;
};

}  // namespace ddl::collectives
