#pragma once

#include <chrono>
#include <cstdint>

namespace ddl::collectives {

using Clock = std::chrono::steady_clock;

/// Cheap timestamps (a few nanoseconds each): the processor's time stamp counter where it is invariant, else
/// `Clock`. All processes of a host share one time base.
class Ticks {
 public:
  [[nodiscard]] static std::uint64_t now() noexcept;

  /// Samples both clocks. `seconds_each` derives the rate from the time that has passed since.
  Ticks() noexcept;
  /// Length of a tick in seconds. The error is below 1% once a millisecond has passed since construction.
  [[nodiscard]] double seconds_each() const noexcept;

 private:
  std::uint64_t ticks_;
  Clock::time_point time_;
};

}  // namespace ddl::collectives
