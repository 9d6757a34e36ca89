#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/timeline/run_recorder.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {

/// What a `Work` refers to. Any thread.
class WorkState {
 public:
  using Continuation = std::function<void(const Error*)>;
  /// Moves the operation on in the caller's thread: until it is done, or by what can be done now.
  using Help = std::function<void(const WorkState&, bool until_done)>;

  /// `help`: for operations that no thread moves by itself. `run`: told of waits, if not null.
  explicit WorkState(Help help = nullptr, std::shared_ptr<RunRecorder> run = nullptr)
      : help_(std::move(help)), run_(std::move(run)) {}

  void wait();
  bool wait_for(std::chrono::nanoseconds duration);
  [[nodiscard]] bool test();
  void then(Continuation continuation);
  [[nodiscard]] bool done() const noexcept { return done_.load(std::memory_order_acquire); }

  /// Holds on to something until this is done.
  void keep(std::shared_ptr<const void> what);

  /// Called once; runs the continuations.
  void finish(std::optional<Error> error);

 private:
  const Help help_;
  const std::shared_ptr<RunRecorder> run_;
  std::atomic<bool> done_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Error> error_;
  std::vector<Continuation> continuations_;
  std::shared_ptr<const void> kept_;
};

/// A `Help` for what is done in parts that no thread moves by itself. `part()` returns the one that is under
/// way, or null while another thread is between two.
template <typename Part>
void help_with_parts(const WorkState& wanted, bool until_done, const Part& part) {
  while (!wanted.done()) {
    const std::shared_ptr<WorkState> current = part();
    try {
      if (!current || current->done()) {
        std::this_thread::yield();
      } else if (until_done) {
        current->wait();
      } else {
        static_cast<void>(current->test());
      }
    } catch (const Error&) {  // it comes to `wanted` as well
    }
    if (!until_done) return;
  }
}

}  // namespace ddl::collectives
