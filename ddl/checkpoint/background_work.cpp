#include "ddl/checkpoint/background_work.hpp"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace ddl {

BackgroundWork::~BackgroundWork() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundWork::start(std::function<void()> work, bool in_thread) {
  work_ = std::move(work);
  exception_ = nullptr;
  done_ = false;
  if (!in_thread) return;
  // A thread starts with its maker's mask.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    exception_ = std::current_exception();
    done_ = true;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void BackgroundWork::run() noexcept {
  try {
    work_();
  } catch (...) {
    exception_ = std::current_exception();
  }
  done_.store(true, std::memory_order_release);
}

void BackgroundWork::wait() {
  if (thread_.joinable()) {
    thread_.join();
  } else if (!done()) {
    run();
  }
  work_ = nullptr;
  if (exception_) std::rethrow_exception(std::exchange(exception_, nullptr));
}

}  // namespace ddl
