#include "device/emulated/emulated_threads.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "device/emulated/emulated_cuda.hpp"

namespace emulated_cuda {
namespace {

/// Whether this thread will look for a job soon, and no job has been assigned to it yet.
thread_local bool looks_soon = false;
thread_local bool runs_host_functions = false;

/// A pool of threads. Each added job gets a thread, an idle one or a new one, so that jobs never wait for
/// each other. Threads are never joined, because they may outlive main.
class Threads {
 public:
  void add(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (std::exchange(looks_soon, false)) return;
    if (idle_ > 0) {
      --idle_;
      ++wakes_;
      woken_.notify_one();
    } else {
      std::thread([this] { work(); }).detach();
    }
  }

 private:
  void work() {
    for (;;) {
      const std::function<void()> job = take();
      job();
    }
  }

  std::function<void()> take() {
    std::unique_lock lock(mutex_);
    looks_soon = false;
    while (jobs_.empty()) {
      ++idle_;
      woken_.wait(lock, [&] { return wakes_ > 0; });
      --wakes_;
    }
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0;   // waiting threads that have not been notified
  std::size_t wakes_ = 0;  // notifications that no thread has taken yet
};

class HostFunctions {
 public:
  HostFunctions() {
    std::thread([this] { work(); }).detach();
  }
  void add(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    changed_.notify_one();
  }

 private:
  void work() {
    runs_host_functions = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !jobs_.empty(); });
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
};

}  // namespace

void run_on_thread(std::function<void()> job) {
  static auto* const threads = new Threads;
  threads->add(std::move(job));
}

void end_job_soon() { looks_soon = true; }

void run_host_function(std::function<void()> job) {
  static auto* const functions = new HostFunctions;
  functions->add(std::move(job));
}

bool is_in_host_function() { return runs_host_functions; }

void Patience::pause() {
  constexpr int before_naps = 64;
  if (++pauses_ < before_naps) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(30));
  }
}

}  // namespace emulated_cuda
