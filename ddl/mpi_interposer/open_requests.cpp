#include "ddl/mpi_interposer/open_requests.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace ddl::mpi {

int OpenRequests::add(Work work, Finish finish, MPI_Request* request) {
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

void OpenRequests::look() {
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

std::optional<Work> OpenRequests::first_of(std::span<const MPI_Request> requests) {
  const std::lock_guard lock(mutex_);
  for (const Open& open : open_) {
    if (std::ranges::find(requests, open.request) != requests.end()) return open.work;
  }
  return std::nullopt;
}

void OpenRequests::wait(std::span<const MPI_Request> requests) {
  while (wait_for_some(requests)) look();
}

bool OpenRequests::wait_for_some(std::span<const MPI_Request> requests,
                                 std::optional<std::chrono::nanoseconds> duration) {
  std::optional<Work> work = first_of(requests);
  if (!work) return false;
  try {
    duration ? static_cast<void>(work->wait_for(*duration)) : work->wait();
  } catch (const Error&) {  // the request's status reports it
  }
  return true;
}

}  // namespace ddl::mpi
