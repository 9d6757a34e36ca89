#include "ddl/checkpoint/background_work.hpp"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

namespace ddl {

void BackgroundWork::start(std::function<void()> work, bool in_thread) {
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

}  // namespace ddl
