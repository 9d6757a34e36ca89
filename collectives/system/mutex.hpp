#pragma once

#include <atomic>

namespace ddl::collectives {

/// A mutex like std::mutex, for critical sections that small calls enter: a free one is locked and unlocked
/// inline by one instruction each (mutex 2 of Drepper, Futexes Are Tricky, 2011).
class Mutex {
 public:
  void lock() noexcept {
    if (try_lock()) return;
    while (state_.exchange(contended, std::memory_order_acquire) != free) {
      state_.wait(contended, std::memory_order_relaxed);
    }
  }
  bool try_lock() noexcept {
    int expected = free;
    return state_.compare_exchange_strong(expected, held, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void unlock() noexcept {
    if (state_.exchange(free, std::memory_order_release) == contended) state_.notify_one();
  }

 private:
  static constexpr int free = 0;
  static constexpr int held = 1;
  static constexpr int contended = 2;  ///< Held, and threads may wait for it.

  std::atomic<int> state_ = free;
};

}  // namespace ddl::collectives
