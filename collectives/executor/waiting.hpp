#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "collectives/system/processor.hpp"
#include "collectives/transports/network/network.hpp"
#include "topology/discovery/sysfs.hpp"

namespace ddl::collectives {

/// While one lives, unbounded waits of the engine in its thread call `at` often, and sleep for 5 ms at most:
/// for callers that must also make progress elsewhere while they wait, for example on MPI's messages.
class Meanwhile {
 public:
  using Look = void (*)();

  explicit Meanwhile(Look at) noexcept;
  Meanwhile& operator=(Meanwhile&&) = delete;
  ~Meanwhile();

  /// Whether this thread has a function to call.
  [[nodiscard]] static bool wanted() noexcept;
  /// Calls this thread's function, if any.
  static void look();

 private:
  Look before_;
};

/// The sleep times between polls of something that cannot wake the thread: short at first, then longer and
/// longer.
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
  /// For the progress of others. Each poll takes a core from some other thread.
  static constexpr Naps for_others() noexcept { return {Duration(500), 2, Duration(5000)}; }

 private:
  Duration shortest_;
  Duration longest_;
  int short_ones_;
  int count_ = 0;
};

/// Moves the calling thread away from a crowded core. Ranks that start, or wake each other, on one core may
/// stay there for long while other cores idle, because the kernel's load balancing does not notice ranks that
/// take turns. The thread's affinity mask is unchanged afterwards.
class CoreSpreading {
 public:
  /// `cores[i]`: the core that member i was last seen on, or -1. Moves `self`, the calling thread's member,
  /// if an allowed core has at least two members fewer than its own and no later member is on its core to
  /// move instead. Acts at most once in some milliseconds.
  void spread(const std::vector<int>& cores, std::size_t self) noexcept;

  /// The core with the fewest members if `self` should move there, else -1.
  [[nodiscard]] static int better_core(const std::vector<int>& allowed, const std::vector<int>& cores,
                                       std::size_t self) noexcept;

 private:
  std::vector<int> allowed_ = topology::own_cpus();
  Clock::time_point next_{};
};

}  // namespace ddl::collectives
