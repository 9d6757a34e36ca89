#pragma once

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
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
  int add(Work work, Finish finish, MPI_Request* request) {
    auto code = std::make_unique<int>(MPI_SUCCESS);
    const auto query = [](void* state, MPI_Status* status) {
      PMPI_Status_set_elements(status, MPI_BYTE, 0);
      PMPI_Status_set_cancelled(status, 0);
      status->MPI_SOURCE = MPI_UNDEFINED;
      status->MPI_TAG = MPI_UNDEFINED;
      return *static_cast<int*>(state);
    };
    const auto free = [](void* state) {
      delete static_cast<int*>(state);
      return MPI_SUCCESS;
    };
    const auto cancel = [](void*, int) { return MPI_SUCCESS; };  // collectives cannot be cancelled
    const int result = PMPI_Grequest_start(query, free, cancel, code.get(), request);
    if (result != MPI_SUCCESS) return result;
    const std::lock_guard lock(mutex_);
    open_.push_back({std::move(work), std::move(finish), *request, code.release()});
    open_count_.store(open_.size(), std::memory_order_release);
    return MPI_SUCCESS;
  }

  [[nodiscard]] bool empty() const noexcept { return open_count_.load(std::memory_order_acquire) == 0; }
  /// Completes the requests whose work is complete.
  void look() {
    if (empty()) return;
    std::list<Open> over;
    const auto is_over = [](Open& open) {
      try {
        return open.work.test();
      } catch (const Error&) {
        return true;
      }
    };
    {
      const std::lock_guard lock(mutex_);
      for (auto open = open_.begin(); open != open_.end();) {
        const auto next = std::next(open);
        if (is_over(*open)) over.splice(over.end(), open_, open);
        open = next;
      }
      open_count_.store(open_.size(), std::memory_order_release);
    }
    for (Open& open : over) {
      try {
        open.work.wait();
        if (open.finish) open.finish();
      } catch (const Error& error) {
        *open.code = explain_(error);
      }
      PMPI_Grequest_complete(open.request);
    }
  }

  /// Waits for those of `requests` that are open, and completes them.
  void wait(std::span<const MPI_Request> requests) {
    while (wait_for_some(requests)) look();
  }

  /// Waits for one of `requests` that are open, for at most `duration`. Returns false if none is open.
  bool wait_for_some(std::span<const MPI_Request> requests,
                     std::optional<std::chrono::nanoseconds> duration = {}) {
    std::optional<Work> work = first_of(requests);
    if (!work) return false;
    try {
      duration ? static_cast<void>(work->wait_for(*duration)) : work->wait();
    } catch (const Error&) {  // the request's status reports it
    }
    return true;
  }

 private:
  struct Open {
    Work work;
    Finish finish;
    MPI_Request request;
    int* code;  // owned by the generalized request, whose free callback deletes it
  };
  /// The work of the first open request that is one of `requests`, if there is one.
  std::optional<Work> first_of(std::span<const MPI_Request> requests) {
    const std::lock_guard lock(mutex_);
    for (const Open& open : open_) {
      if (std::ranges::find(requests, open.request) != requests.end()) return open.work;
    }
    return std::nullopt;
  }

  Explain explain_;
  std::mutex mutex_;
  std::list<Open> open_;
  std::atomic<std::size_t> open_count_ = 0;
};

}  // namespace ddl::mpi
