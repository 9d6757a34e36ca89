#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "collectives/system/clock.hpp"

namespace ddl::collectives {

/// One rank's place to sleep. It lives in memory that is shared between threads or processes, starts out as
/// zeros, and costs whoever rings it next to nothing unless its owner sleeps.
///
/// The owner: `prepare`; look once more at all that may have come; then `cancel`, or `sleep` until so many
/// rings as it still needs at least. Everything published before a `ring` is either seen by that last look or
/// counts as one of the rings.
class Doorbell {
 public:
  /// Returns the ticket for `sleep`. With an event descriptor (an eventfd of the owner's) the owner sleeps in
  /// poll, with it, and rings go there.
  std::uint32_t prepare(bool by_descriptor) noexcept {
    const std::uint32_t ticket = word_.load(std::memory_order_seq_cst);
    needed_.store(many, std::memory_order_seq_cst);
    sleeping_.store(by_descriptor ? by_poll : by_futex, std::memory_order_seq_cst);
    return ticket;
  }
  void cancel() noexcept { sleeping_.store(awake, std::memory_order_relaxed); }
  /// True if the owner must not sleep: so many rings have come since `prepare`.
  bool expect(std::int32_t rings) noexcept {
    return needed_.fetch_add(rings - many, std::memory_order_seq_cst) + (rings - many) <= 0;
  }
  /// After `prepare(false)` and `expect`. May return early and for no reason.
  void sleep(std::uint32_t ticket, Clock::time_point until) noexcept;

  /// Called after something was published with a sequentially consistent store. True if the owner sleeps by
  /// descriptor and this was the last ring it needs: the caller writes to the owner's eventfd.
  [[nodiscard]] bool ring() noexcept { return sleeping_.load(std::memory_order_seq_cst) != awake && count(); }
  /// Wakes the owner whatever it still needs. As `ring`.
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
