#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace ddl {

class Error;

namespace collectives {
class WorkState;
}

/// A collective that has been started and may still be under way; a handle that can be copied. Its buffers
/// must stay where they are, and be left alone, until it is done. Dropping the last handle does not stop it.
/// Any thread.
class Work {
 public:
  /// Done already.
  Work() = default;
  explicit Work(std::shared_ptr<collectives::WorkState> state);

  /// Returns when it is done; throws the `Error` it ended with, to each who waits.
  void wait();
  /// Waits for `duration` at most. Whether it is done. Throws as `wait`.
  bool wait_for(std::chrono::nanoseconds duration);
  /// Whether it is done. Throws as `wait`. Does not block.
  bool test();
  /// Has `continuation` called once it is done, with null, or with the error it ended with: in this call if
  /// it is done already, else by the thread that finishes it, which it must not keep for long. It may start
  /// collectives, and must not wait for any. It must not throw.
  void then(std::function<void(const Error*)> continuation);

 private:
  std::shared_ptr<collectives::WorkState> state_;
};

}  // namespace ddl
