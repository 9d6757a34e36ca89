#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "collectives/system/clock.hpp"

namespace ddl::collectives {

/// Chooses how copies for members are written: through this core's caches, or past them.
///
/// Through the caches is the faster way if the member's core shares the third-level cache. If it does not,
/// each line must first be taken back from it, far away: on a Zen 4, 2.5 GB/s, where 15 GB/s go past the
/// caches; on a Zen 3, 4 and 10. What the system says of caches is not what a virtual machine's processors
/// run on, and may change. So the copies are timed, which costs 20 ns each; what their receivers lose by
/// reading from memory is estimated.
class CopyPace {
 public:
  /// Shorter copies follow the choice, and are not timed.
  static constexpr std::size_t least_timed = std::size_t{8} << 10;

  /// Whether the next copy is written past the caches.
  [[nodiscard]] bool streams() noexcept {
    ++copies_;
    if (!streams_) return copies_ % between_looks == 0 || std::has_single_bit(copies_);
    if (copies_ < next_try_) return true;
    between_tries_ = std::min(2 * between_tries_, between_looks);
    next_try_ = copies_ + between_tries_;
    return false;
  }

  void note(bool streamed, std::size_t bytes, std::uint64_t ticks) noexcept {
    const double pace = static_cast<double>(ticks) / static_cast<double>(bytes);
    if (streamed) {
      // The fastest of the last ones: a rank that loses its core looks slow.
      streaming_ = streaming_ == 0 ? pace : std::min(pace, streaming_ * 1.25);
      return;
    }
    if (reading_ == 0) reading_ = 1 / (reading_rate * ticks_.seconds_each());
    const bool is_slow = streaming_ != 0 && pace > clearly_slower * (streaming_ + reading_);
    slow_in_a_row_ = is_slow ? slow_in_a_row_ + 1 : 0;
    if (!is_slow) {
      streams_ = false;
    } else if (!streams_ && slow_in_a_row_ >= slow_enough) {
      streams_ = true;
      between_tries_ = 1;
      next_try_ = copies_ + between_tries_;
    }
  }

 private:
  static constexpr std::uint64_t between_looks = 256;
  static constexpr int slow_enough = 4;
  static constexpr double clearly_slower = 1.25;
  static constexpr double reading_rate = 16e9;  // bytes/s, from memory

  bool streams_ = false;
  std::uint64_t copies_ = 0;
  std::uint64_t next_try_ = 0;
  std::uint64_t between_tries_ = 1;
  Ticks ticks_;
  // In ticks a byte; 0: not known yet.
  double streaming_ = 0;
  double reading_ = 0;
  int slow_in_a_row_ = 0;
};

}  // namespace ddl::collectives
