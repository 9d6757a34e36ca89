#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <future>
#include <system_error>
#include <utility>

namespace ddl {

/// Runs work in a thread of its own, or in the thread that waits for it; one piece of work at a time. The
/// destructor waits for the thread.
class BackgroundWork {
 public:
  /// Must not be called before `wait` has returned for the previous work. `wait` throws errors, also that of
  /// creating the thread. The thread receives no signals.
  void start(std::function<void()> work, bool in_thread) {
    if (!in_thread) {
      result_ = std::async(std::launch::deferred, std::move(work));
      return;
    }
    // A thread inherits the signal mask of its creator.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      result_ = std::async(std::launch::async, std::move(work));
    } catch (const std::system_error&) {  // the thread could not be created
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
  /// Returns when the work is done; rethrows its exception.
  void wait() {
    if (result_.valid()) result_.get();
  }

 private:
  std::future<void> result_;
};

}  // namespace ddl
