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

/// Non-blocking calls in flight in the engine. Each is a generalized request, which all MPI functions accept.
/// Threads that wait or test complete these requests, so that the engine's own thread makes no MPI call. May
/// be used by any thread that may call MPI.
class OpenRequests {
 public:
  /// Called after the work by the thread that completes the request, for instance to unpack data.
  using Finish = std::function<void()>;
  /// Returns the MPI error code for failed work.
  using Explain = std::function<int(const Error&)>;

  explicit OpenRequests(Explain explain) : explain_(std::move(explain)) {}

  /// Returns MPI's error code.
  int add(Work work, Finish finish, MPI_Request* request);

  [[nodiscard]] bool empty() const noexcept { return open_count_.load(std::memory_order_acquire) == 0; }
  /// Completes the requests whose work is complete.
  void look();
  /// Waits for those of `requests` that are open, and completes them.
  void wait(std::span<const MPI_Request> requests);
  /// Waits for one of `requests` that are open, for at most `duration`. Returns false if none is open.
  bool wait_for_some(std::span<const MPI_Request> requests,
                     std::optional<std::chrono::nanoseconds> duration = {});

 private:
  struct Open {
    Work work;
    Finish finish;
    MPI_Request request;
    int* code;  // owned by the generalized request, whose free callback deletes it
  };
  /// The work of the first open request that is one of `requests`, if there is one.
  std::optional<Work> first_of(std::span<const MPI_Request> requests);

  Explain explain_;
  std::mutex mutex_;
  std::list<Open> open_;
  std::atomic<std::size_t> open_count_ = 0;
};

}  // namespace ddl::mpi
