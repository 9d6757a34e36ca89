#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "ddl/error.hpp"

namespace ddl::collectives {

/// What a `Work` refers to. Any thread.
class WorkState {
 public:
  using Continuation = std::function<void(const Error*)>;

  void wait();
  [[nodiscard]] bool test();
  void then(Continuation continuation);

  /// Called once; runs the continuations.
  void finish(std::optional<Error> error);

 private:
  std::atomic<bool> done_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Error> error_;
  std::vector<Continuation> continuations_;
};

}  // namespace ddl::collectives
