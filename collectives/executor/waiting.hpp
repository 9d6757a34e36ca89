#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "collectives/transports/network/network.hpp"

namespace ddl::collectives {

/// Tells the core that it is in a loop that waits for memory to change.
inline void pause_briefly() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// While one of these lives, its thread calls it again and again in all waits of the engine: for callers
/// in whose waits something else has to move on as well, such as MPI's messages. The thread then sleeps for 5
/// ms at most at a time.
class Meanwhile {
 public:
  using Look = void (*)();

  explicit Meanwhile(Look at) noexcept;
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;
  ~Meanwhile();

  /// Whether this thread has something to look at.
  [[nodiscard]] static bool wanted() noexcept;
  /// Calls what this thread wants called, if anything.
  static void look();

 private:
  Look before_;
};

/// How long to sleep before the next look at what cannot wake anyone: little at first, then more and more.
class Naps {
 public:
  using Duration = std::chrono::microseconds;

  constexpr Naps(Duration shortest, int short_ones, Duration longest) noexcept
      : shortest_(shortest), longest_(longest), short_ones_(short_ones) {}

  Duration next() noexcept {
    if (++count_ <= short_ones_) return shortest_;
    return std::min(longest_, shortest_ * (count_ - short_ones_ + 1));
  }
  void reset() noexcept { count_ = 0; }

  /// For what this thread itself waits for.
  static constexpr Naps for_own() noexcept { return {Duration(50), 20, Duration(1000)}; }
  /// For what concerns others: each look takes a core away from somebody.
  static constexpr Naps for_others() noexcept { return {Duration(500), 2, Duration(5000)}; }

 private:
  Duration shortest_;
  Duration longest_;
  int short_ones_;
  int count_ = 0;
};

/// Moves the calling thread away from a crowded core. Ranks that start, or wake each other, on one core may
/// stay there for a long time while other cores idle: a kernel's balancing does not notice ranks that take
/// turns. No core is kept: where the thread may run is as before afterwards.
class CoreSpreading {
 public:
  CoreSpreading();

  /// `cores[i]` is the core that member i was last seen on, -1 if unknown; `self` is one of them. Moves it if
  /// another core it may use has at least two members less than its own, and no later member is there to do
  /// so. At most once in some milliseconds.
  void spread(const std::vector<int>& cores, std::size_t self) noexcept;

  /// The core with the least members that `self` should move to; -1: it should stay.
  [[nodiscard]] static int better_core(const std::vector<int>& allowed, const std::vector<int>& cores,
                                       std::size_t self) noexcept;

 private:
  std::vector<int> allowed_;
  Clock::time_point next_{};
};

}  // namespace ddl::collectives
