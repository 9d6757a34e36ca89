#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "collectives/executor/waiting.hpp"
#include "ddl/context.hpp"
#include "ddl/context/agreement.hpp"
#include "ddl/mpi_interposer/open_requests.hpp"
#include "ddl/mpi_interposer/tally.hpp"
#include "ddl/shared_buffer.hpp"

namespace ddl::mpi {

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
