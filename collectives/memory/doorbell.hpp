#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "collectives/system/clock.hpp"

namespace ddl::collectives {

/// A place for one rank to sleep. It lives in memory that threads or processes share, starts as zeros, and a
/// ring costs next to nothing unless the owner sleeps.
///
/// The owner calls `prepare`, checks once more for everything that may have been published, and then calls
/// `cancel`, or `expect` with the least number of rings that it needs, and `sleep`. Everything published
/// before a `ring` is either seen by that check or counts as a ring.
class Doorbell {
 public:
  /// Returns the ticket for `sleep`. `by_descriptor`: the owner sleeps in poll on its own eventfd, which
  /// ringers must signal.
  std::uint32_t prepare(bool by_descriptor) noexcept {
    const std::uint32_t ticket = word_.load(std::memory_order_seq_cst);
    needed_.store(many, std::memory_order_seq_cst);
    sleeping_.store(by_descriptor ? by_poll : by_futex, std::memory_order_seq_cst);
    return ticket;
  }
  void cancel() noexcept { sleeping_.store(awake, std::memory_order_relaxed); }
  /// Returns true if at least `rings` rings have come since `prepare`, so the owner must not sleep.
  bool expect(std::int32_t rings) noexcept {
    return needed_.fetch_add(rings - many, std::memory_order_seq_cst) + (rings - many) <= 0;
  }
  /// Call after `prepare(false)` and `expect`. Spurious wake-ups are possible.
  void sleep(std::uint32_t ticket, Clock::time_point until) noexcept;

  /// Call after publishing with a sequentially consistent store. Returns true if the owner sleeps by
  /// descriptor and this was the last ring it needs: the caller must then signal the owner's eventfd.
  [[nodiscard]] bool ring() noexcept { return sleeping_.load(std::memory_order_seq_cst) != awake && count(); }
  /// Like `ring`, but wakes the owner no matter how many rings it still needs.
  [[nodiscard]] bool ring_loudly() noexcept { return wake(); }

 private:
  static constexpr std::uint32_t awake = 0;
  static constexpr std::uint32_t by_futex = 1;
  static constexpr std::uint32_t by_poll = 2;
  static constexpr std::int32_t many = std::numeric_limits<std::int32_t>::max() / 2;

  bool count() noexcept { return needed_.fetch_sub(1, std::memory_order_seq_cst) == 1 && wake(); }
  bool wake() noexcept;

  std::atomic<std::uint32_t> word_;
  std::atomic<std::uint32_t> sleeping_;
  std::atomic<std::int32_t> needed_;
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

}  // namespace ddl::collectives
