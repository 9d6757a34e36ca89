#pragma once

#include <sched.h>

#include <cstdint>
#include <vector>

#include "collectives/transports/network/network.hpp"

namespace ddl::collectives {

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
