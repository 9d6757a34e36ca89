#pragma once

#include <chrono>
#include <cstdint>

namespace ddl::collectives {

using Clock = std::chrono::steady_clock;

/// Moments for a few nanoseconds each: the processor's time stamp counter where it runs evenly, else `Clock`.
/// All processes of a host count alike.
class Ticks {
 public:
  [[nodiscard]] static std::uint64_t now() noexcept;

  /// Notes the present by both clocks; what comes later is converted by the rate since.
  Ticks() noexcept;
  /// How long one is. The error is below 1% from a millisecond after construction on.
  [[nodiscard]] double seconds_each() const noexcept;

 private:
  std::uint64_t ticks_;
  Clock::time_point time_;
};

}  // namespace ddl::collectives
