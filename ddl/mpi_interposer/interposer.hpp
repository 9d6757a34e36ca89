#pragma once

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "collectives/executor/waiting.hpp"
#include "ddl/context.hpp"
#include "ddl/context/agreement.hpp"
#include "ddl/error.hpp"
#include "ddl/log.hpp"
#include "ddl/shared_buffer.hpp"
#include "ddl/topology/as_index.hpp"
#include "ddl/work.hpp"

namespace ddl::mpi {

/// The MPI functions that the engine may serve; `i...` are the non-blocking ones.
enum class Function : std::uint8_t {
  allreduce,
  bcast,
  reduce_scatter,
  reduce_scatter_block,
  allgather,
  iallreduce,
  ibcast,
  ireduce_scatter,
  ireduce_scatter_block,
  iallgather,
};
inline constexpr std::size_t functions = 10;

/// Why a call is left to MPI. The same on all ranks of its communicator.
enum class PassedOn : std::uint8_t {
  communicator,       ///< Has one process, has processes outside MPI_COMM_WORLD, or is an intercommunicator.
  not_open,           ///< A non-blocking call on a communicator that is not open yet.
  type_or_operation,  ///< The engine lacks the type or the operation.
  counts,             ///< The pieces of a reduce-scatter are too different.
  slower,             ///< MPI is faster at this size.
  no_thread,          ///< A non-blocking call, but the engine has no progress thread.
  arguments,          ///< Invalid arguments, which MPI reports.
};

/// Counts served calls and calls left to MPI. Thread-safe.
class Tally {
 public:
  void served(Function function, std::size_t bytes) noexcept {
    Counts& counts = counts_[as_index(function)];
    counts.calls.fetch_add(1, std::memory_order_relaxed);
    counts.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }

  /// Logs the first call of each function and reason at debug level 2.
  void passed_on(Function function, PassedOn reason, Log& log) {
    const auto function_index = as_index(function);
    const auto reason_index = as_index(reason);
    if (counts_[function_index].passed_on[reason_index].fetch_add(1, std::memory_order_relaxed) != 0) return;
    log.debug(fmt::format("{} is left to MPI: {}", names[function_index], reason_texts[reason_index]));
  }

  /// Logs a line for each function that was called.
  void print(Log& log) const {
    for (std::size_t i = 0; i < functions; ++i) {
      const Counts& counts = counts_[i];
      std::string left;
      for (std::size_t reason = 0; reason < reasons; ++reason) {
        const std::uint64_t calls = counts.passed_on[reason].load(std::memory_order_relaxed);
        if (calls != 0) left += fmt::format("; {} left to MPI: {}", calls, reason_texts[reason]);
      }
      const std::uint64_t calls = counts.calls.load(std::memory_order_relaxed);
      if (calls == 0 && left.empty()) continue;
      log.info(fmt::format("{}: {} served, {} bytes{}", names[i], calls,
                           counts.bytes.load(std::memory_order_relaxed), left));
    }
  }

 private:
  /// In the order of `Function`; `reason_texts` is in the order of `PassedOn`.
  static constexpr std::array<const char*, functions> names = {
      "MPI_Allreduce",  "MPI_Bcast",  "MPI_Reduce_scatter",  "MPI_Reduce_scatter_block",  "MPI_Allgather",
      "MPI_Iallreduce", "MPI_Ibcast", "MPI_Ireduce_scatter", "MPI_Ireduce_scatter_block", "MPI_Iallgather",
  };

  static constexpr std::array reason_texts = {
      "a communicator with one process, or with processes outside MPI_COMM_WORLD",
      "a communicator on which there has been no blocking call",
      "a type or operation that only MPI has",
      "counts that differ much from rank to rank",
      "MPI is faster at this size (DDL_MPI_SERVE=all: serve them, too)",
      "without UCX there is no thread that progresses non-blocking calls",
      "invalid arguments, which MPI reports",
  };
  static constexpr std::size_t reasons = reason_texts.size();
  struct Counts {
    std::atomic<std::uint64_t> calls = 0;
    std::atomic<std::uint64_t> bytes = 0;
    std::array<std::atomic<std::uint64_t>, reasons> passed_on = {};
  };
  std::array<Counts, functions> counts_;
};

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

/// Serves an MPI program's collectives between MPI_Init and MPI_Finalize.
///
/// Whether a call is served depends only on arguments that MPI requires to be the same on all ranks of the
/// communicator, so all ranks decide the same and served calls may be mixed with calls of MPI. While a served
/// call waits, its thread drives MPI's progress.
class Interposer {
 public:
  /// To be called after MPI_Init; collective. Aborts the job with a message if it cannot be served, because
  /// the user asked for this library.
  static void start();
  /// To be called before MPI_Finalize; collective.
  static void stop();
  /// Null before `start` and after `stop`.
  [[nodiscard]] static Interposer* current() noexcept { return current_.load(std::memory_order_acquire); }

  Interposer();
  Interposer& operator=(Interposer&&) = delete;
  ~Interposer();

  /// The engine's communicator for an MPI communicator, or null. `opens`: opens it if that has not been done,
  /// which is collective. The result lives as long as the MPI communicator.
  collectives::CommunicatorImpl* serving(MPI_Comm communicator, bool opens);

  [[nodiscard]] Context& context() noexcept { return context_; }
  [[nodiscard]] OpenRequests& requests() noexcept { return requests_; }
  [[nodiscard]] Tally& tally() noexcept { return tally_; }
  /// Whether also calls that MPI executes faster are served (DDL_MPI_SERVE=all).
  [[nodiscard]] bool serves_all() const noexcept { return serves_all_; }
  /// Whether non-blocking calls progress while no thread waits for them.
  [[nodiscard]] bool has_thread() const noexcept { return context_.has_progress_thread(); }

  /// Allocates memory that the ranks of a host share; null if that fails.
  void* allocate(std::size_t bytes);
  /// Frees memory of `allocate`; false if `data` is other memory.
  bool release(void* data);

  /// Runs `body`, a call on the MPI communicator that returns an MPI error code, and turns its exceptions
  /// into error codes. MPI's messages progress while it waits.
  template <typename F>
  static int guarded(MPI_Comm communicator, F&& body) {
    const collectives::Meanwhile meanwhile(&drive_mpi);
    try {
      return std::forward<F>(body)();
    } catch (...) {
      return failed(communicator, as_error(std::current_exception()));
    }
  }

  /// Progresses MPI's messages.
  static void drive_mpi();

 private:
  /// The attribute of an MPI communicator; null if its calls are left to MPI.
  using Served = std::shared_ptr<collectives::CommunicatorImpl>;
  Served* attached(MPI_Comm communicator) const;
  Served* open(MPI_Comm communicator);
  [[nodiscard]] Served make(MPI_Comm communicator);
  void forget(const Served* served);

  int explain(const Error& error);
  static int failed(MPI_Comm communicator, const Error& error);

  static std::atomic<Interposer*> current_;

  Context context_;
  Tally tally_;
  OpenRequests requests_;
  bool serves_all_ = false;
  MPI_Comm silent_ = MPI_COMM_NULL;  // carries no messages; probing it progresses MPI
  int attribute_ = MPI_KEYVAL_INVALID;
  int error_class_ = MPI_ERR_OTHER;
  std::atomic<bool> has_reported_ = false;
  std::mutex mutex_;
  std::list<Served> served_;  // MPI attributes point to its elements
  std::map<void*, SharedBuffer<std::byte>> allocated_;
};

}  // namespace ddl::mpi
