#pragma once

#include <atomic>
#include <cstdint>

#include "collectives/transport.hpp"

namespace ddl::collectives {

/// One rank's place to sleep. It lives in memory that is shared between threads or processes, starts
/// out as zeros, and costs whoever rings it a system call only while its owner sleeps.
class Doorbell {
 public:
  /// The owner is about to sleep. Everything published before the next `ring` but after this call's
  /// return is either seen by the owner's last look, or ends its sleep.
  std::uint32_t prepare() noexcept {
    // In this order: a ring after the store and before the load would take the flag back without the ticket
    // being old, and the next ring would wake nobody.
    const std::uint32_t ticket = value_.load(std::memory_order_seq_cst);
    sleeping_.store(1, std::memory_order_seq_cst);
    return ticket;
  }
  void cancel() noexcept { sleeping_.store(0, std::memory_order_relaxed); }
  void sleep(std::uint32_t ticket, Clock::time_point until) noexcept;

  /// Called after something was published with a sequentially consistent store.
  void ring() noexcept {
    if (sleeping_.load(std::memory_order_seq_cst) != 0) wake();
  }

 private:
  void wake() noexcept;

  std::atomic<std::uint32_t> value_;
  std::atomic<std::uint32_t> sleeping_;
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

}  // namespace ddl::collectives
