#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace ddl {

/// A piece of work that is done in a thread of its own, or by whoever waits for it. One at a time.
class BackgroundWork {
 public:
  BackgroundWork() = default;
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;
  /// Waits for the thread.
  ~BackgroundWork();

  /// Only if the work before it has been waited for. What goes wrong is thrown by `wait`. The thread gets no
  /// signals.
  void start(std::function<void()> work, bool in_thread);
  /// Whether `wait` would return at once.
  [[nodiscard]] bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// Returns when the work is done; throws what it threw.
  void wait();

 private:
  void run() noexcept;

  std::function<void()> work_;
  std::thread thread_;
  std::exception_ptr exception_;
  std::atomic<bool> done_ = true;
};

}  // namespace ddl
