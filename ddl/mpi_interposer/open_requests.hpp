#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/work.hpp"

namespace ddl::mpi {

/// Non-blocking calls that the engine has under way. To MPI each is a generalized request, which all of its
/// functions accept; it is completed by threads that wait or test, so that the engine's own thread makes no
/// MPI call. Any thread that may call MPI.
class OpenRequests {
 public:
  /// Called, once the work is over, by the thread that completes the request: for what is left to do.
  using Finish = std::function<void()>;
  /// Returns the error code for a work that failed.
  using Explain = std::function<int(const Error&)>;

  explicit OpenRequests(Explain explain) : explain_(std::move(explain)) {}

  /// Returns MPI's error code.
  int add(Work work, Finish finish, MPI_Request* request);

  [[nodiscard]] bool empty() const noexcept { return open_count_.load(std::memory_order_acquire) == 0; }
  /// Completes those that are over.
  void look();
  /// Waits for those of `requests` that are open, and completes them.
  void wait(std::span<const MPI_Request> requests);
  /// Whether one of `requests` is open. If so, has first waited for one of them, for `duration` at most.
  bool wait_for_some(std::span<const MPI_Request> requests,
                     std::optional<std::chrono::nanoseconds> duration = {});

 private:
  struct Open {
    Work work;
    Finish finish;
    MPI_Request request;
    int* code;  // MPI's; freed by it after completion
  };
  /// The work of one of `requests` that is open, if any is.
  std::optional<Work> first_of(std::span<const MPI_Request> requests);

  Explain explain_;
  std::mutex mutex_;
  std::list<Open> open_;
  std::atomic<std::size_t> open_count_ = 0;
};

}  // namespace ddl::mpi
