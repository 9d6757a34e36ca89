#pragma once

#include <chrono>
#include <functional>
#include <future>

namespace ddl {

/// A piece of work that is done in a thread of its own, or by whoever waits for it. One at a time. The end of
/// this waits for the thread.
class BackgroundWork {
 public:
  /// Only if the work before it has been waited for. What goes wrong is thrown by `wait`. The thread gets no
  /// signals.
  void start(std::function<void()> work, bool in_thread);
  /// Whether `wait` would return at once.
  [[nodiscard]] bool done() const {
    return !result_.valid() || result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  /// Returns when the work is done; throws what it threw.
  void wait() {
    if (result_.valid()) result_.get();
  }

 private:
  std::future<void> result_;
};

}  // namespace ddl
