#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace ddl {

class Error;

namespace collectives {
class WorkState;
}

/// A handle of a collective that has been started and may be outstanding; copies refer to the same
/// collective. The caller keeps the collective's buffers in place, and neither reads nor writes them, until
/// it is complete. Dropping the last handle does not cancel it. Any thread.
class Work {
 public:
  /// Complete, without an error.
  Work() = default;
  /// For the library itself.
  explicit Work(std::shared_ptr<collectives::WorkState> state);

  /// Blocks until the collective is complete. Throws the `Error` it ended with, to every caller. Without a
  /// progress thread (`Context::has_progress_thread`), this call and `test` drive the collective.
  void wait();
  /// Blocks for at most `duration`. Returns whether the collective is complete. Throws as `wait` does.
  bool wait_for(std::chrono::nanoseconds duration);
  /// Returns whether the collective is complete, without blocking. Throws as `wait` does.
  bool test();
  /// Calls `continuation` once when the collective is complete, with null or with the error it ended with: in
  /// this call if it is complete already, else in the thread that completes it. `continuation` must be short
  /// and must not throw; it may start collectives, but must not wait for any.
  void then(std::function<void(const Error*)> continuation);

 private:
  std::shared_ptr<collectives::WorkState> state_;
};

}  // namespace ddl
