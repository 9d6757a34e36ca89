#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <future>
#include <system_error>
#include <utility>

namespace ddl {

/// A piece of work that is done in a thread of its own, or by whoever waits for it. One at a time. The end of
/// this waits for the thread.
class BackgroundWork {
 public:
  /// Only if the work before it has been waited for. What goes wrong is thrown by `wait`. The thread gets no
  /// signals.
  void start(std::function<void()> work, bool in_thread) {
    if (!in_thread) {
      result_ = std::async(std::launch::deferred, std::move(work));
      return;
    }
    // A thread starts with its maker's mask.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      result_ = std::async(std::launch::async, std::move(work));
    } catch (const std::system_error&) {  // no more threads
      std::promise<void> failed;
      failed.set_exception(std::current_exception());
      result_ = failed.get_future();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
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
