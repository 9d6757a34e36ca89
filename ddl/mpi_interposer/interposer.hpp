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

/// What serves an MPI program's collectives between MPI_Init and MPI_Finalize.
///
/// Whether a call is served depends only on what MPI demands to be the same on all ranks of its communicator:
/// all decide alike, and calls of both kinds may be mixed. While a served call waits, its thread drives MPI's
/// progress.
class Interposer {
 public:
  /// After MPI_Init; collective. A job that cannot be served ends with a message, as the user has asked for
  /// it to be.
  static void start();
  /// Before MPI_Finalize; collective.
  static void stop();
  /// Null before and after.
  [[nodiscard]] static Interposer* current() noexcept { return current_.load(std::memory_order_acquire); }

  Interposer();
  Interposer(const Interposer&) = delete;
  Interposer& operator=(const Interposer&) = delete;
  ~Interposer();

  /// The engine's communicator for MPI's, or null. `opens`: one that has not been asked for is opened now,
  /// which all of its ranks do at the same time. The result lives as long as MPI's.
  collectives::CommunicatorImpl* serving(MPI_Comm communicator, bool opens);

  [[nodiscard]] Context& context() noexcept { return context_; }
  [[nodiscard]] OpenRequests& requests() noexcept { return requests_; }
  [[nodiscard]] Tally& tally() noexcept { return tally_; }
  /// DDL_MPI_SERVE=all: also calls that MPI is faster at.
  [[nodiscard]] bool serves_all() const noexcept { return serves_all_; }
  /// Whether non-blocking calls go on while nobody waits for them.
  [[nodiscard]] bool has_thread() const noexcept { return context_.has_progress_thread(); }

  /// Memory that the ranks of a host share; null if there is none left.
  void* allocate(std::size_t bytes);
  /// False if it is not from `allocate`.
  bool release(void* data);

  /// Runs `body`, a call on MPI's `communicator` that returns MPI's error code. What it throws becomes one.
  /// While it waits, MPI's messages move on.
  template <typename F>
  static int guarded(MPI_Comm communicator, F&& body) {
    const collectives::Meanwhile meanwhile(&drive_mpi);
    try {
      return std::forward<F>(body)();
    } catch (...) {
      return failed(communicator, as_error(std::current_exception()));
    }
  }

  /// Moves MPI's messages on.
  static void drive_mpi();

 private:
  /// What hangs on one of MPI's communicators. Null: its calls are left to MPI.
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
  MPI_Comm silent_ = MPI_COMM_NULL;  // nobody ever sends on it
  int attribute_ = MPI_KEYVAL_INVALID;
  int error_class_ = MPI_ERR_OTHER;
  std::atomic<bool> has_reported_ = false;
  std::mutex mutex_;
  std::list<Served> served_;  // attributes point into it
  std::map<void*, SharedBuffer<std::byte>> allocated_;
};

}  // namespace ddl::mpi
