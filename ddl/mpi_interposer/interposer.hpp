#pragma once

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/context/agreement.hpp"
#include "ddl/error.hpp"
#include "ddl/log.hpp"
#include "ddl/mpi_interposer/served_sizes.hpp"
#include "ddl/shared_buffer.hpp"

namespace ddl::mpi {

/// Why a call is left to MPI. The same on all ranks of its communicator.
enum class PassedOn : std::uint8_t {
  communicator,       ///< Has one process, has processes outside MPI_COMM_WORLD, or is an intercommunicator.
  type_or_operation,  ///< The engine lacks the type or the operation.
  counts,             ///< The pieces of a reduce-scatter are too different.
  slower,             ///< MPI is faster at this size.
  arguments,          ///< Invalid arguments, which MPI reports.
};

/// Counts served calls and calls left to MPI.
class Tally {
 public:
  /// `by_one_thread`: the functions below are never called at the same time. An atomic addition would wait
  /// for all earlier stores, also for those to a peer's cache, which a small call may not have to do.
  explicit Tally(bool by_one_thread) noexcept : by_one_thread_(by_one_thread) {}

  void served(Function function, std::size_t bytes) noexcept {
    Counts& counts = counts_[as_index(function)];
    add(counts.calls, 1);
    add(counts.bytes, bytes);
  }

  /// Logs the first call of each function and reason at debug level 2.
  void passed_on(Function function, PassedOn reason, const Context& context) {
    const auto function_index = as_index(function);
    const auto reason_index = as_index(reason);
    if (add(counts_[function_index].passed_on[reason_index], 1) != 0) return;
    context.log().debug(
        fmt::format("{} is left to MPI: {}", names[function_index], reason_texts[reason_index]));
  }

  /// Logs a line for each function that was called.
  void print(Log& log) const {
    for (std::size_t i = 0; i < names.size(); ++i) {
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
  static constexpr std::array names = {
      "MPI_Allreduce", "MPI_Bcast",  "MPI_Reduce_scatter", "MPI_Reduce_scatter_block",
      "MPI_Allgather", "MPI_Reduce",
  };

  static constexpr std::array reason_texts = {
      "a communicator with one process, or with processes outside MPI_COMM_WORLD",
      "a type or operation that only MPI has",
      "counts that differ much from rank to rank",
      "MPI is faster at this size (DDL_MPI_SERVE=all: serve them, too)",
      "invalid arguments, which MPI reports",
  };
  static constexpr std::size_t reasons = reason_texts.size();
  using Count = std::atomic<std::uint64_t>;
  struct Counts {
    Count calls = 0;
    Count bytes = 0;
    std::array<Count, reasons> passed_on = {};
  };

  /// Returns the count before.
  std::uint64_t add(Count& count, std::uint64_t number) const noexcept {
    if (!by_one_thread_) return count.fetch_add(number, std::memory_order_relaxed);
    const std::uint64_t before = count.load(std::memory_order_relaxed);
    count.store(before + number, std::memory_order_relaxed);
    return before;
  }

  const bool by_one_thread_;
  std::array<Counts, names.size()> counts_;
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

  /// How an MPI communicator's calls are served.
  struct Served {
    std::shared_ptr<collectives::CommunicatorImpl> communicator;  ///< Null: all are left to MPI.
    ServedSizes sizes;                                            ///< All, if `communicator` is null.
  };
  /// What calls with a communicator and a type have in common. MPI looks for attributes under a lock, so a
  /// thread keeps what it found last.
  struct Known {
    MPI_Comm communicator = nullptr;  // its handle may be that of one that was freed since
    std::uint64_t forgotten = 0;
    const Served* served = nullptr;  ///< Lives as long as the MPI communicator.
    MPI_Datatype type = nullptr;
    std::size_t element_bytes = 0;  ///< See `plain_bytes`.
    std::size_t ranks = 0;
  };
  /// What this thread's last call had in common with this one; null if that was another one. Needs few
  /// instructions, and none that waits for earlier stores: those of MPI's last call are on their way to
  /// another core.
  [[nodiscard]] const Known* known(MPI_Comm communicator, MPI_Datatype type) const noexcept {
    const Known& last = known_;
    const bool is_same = last.served != nullptr && communicator == last.communicator && type == last.type &&
                         forgotten_.load(std::memory_order_acquire) == last.forgotten;
    return is_same ? &last : nullptr;
  }
  /// The same for any call, valid until this thread's next one. The first call for a communicator is
  /// collective.
  const Known& find(MPI_Comm communicator, MPI_Datatype type);

  [[nodiscard]] Context& context() noexcept { return context_; }
  [[nodiscard]] Tally& tally() noexcept { return tally_; }
  /// Allocates memory that the ranks of a host share; null if that fails.
  void* allocate(std::size_t bytes);
  /// Frees memory of `allocate`; false if `data` is other memory.
  bool release(void* data);

  /// Runs `body`, a call on the MPI communicator that returns an MPI error code, and turns its exceptions
  /// into error codes.
  template <typename F>
  static int guarded(MPI_Comm communicator, F&& body) {
    try {
      return std::forward<F>(body)();
    } catch (...) {
      return failed(communicator, as_error(std::current_exception()));
    }
  }

  /// Progresses MPI's messages, for `collectives::Meanwhile`.
  static void drive_mpi();

 private:
  Served* attached(MPI_Comm communicator) const;
  Served* open(MPI_Comm communicator);
  [[nodiscard]] Served make(MPI_Comm communicator);
  [[nodiscard]] std::shared_ptr<collectives::CommunicatorImpl> engine_of(MPI_Comm communicator);
  [[nodiscard]] ServedSizes sizes_of(collectives::CommunicatorImpl& engine, MPI_Comm communicator);
  void forget(const Served* served);

  static int failed(MPI_Comm communicator, const Error& error);

  static std::atomic<Interposer*> current_;

  [[gnu::tls_model("initial-exec")]] static thread_local constinit Known known_;

  Context context_;
  Tally tally_;
  bool serves_all_ = false;          // also sizes at which MPI is faster (DDL_MPI_SERVE=all)
  MPI_Comm silent_ = MPI_COMM_NULL;  // carries no messages; probing it progresses MPI
  int attribute_ = MPI_KEYVAL_INVALID;
  std::atomic<bool> has_reported_ = false;
  std::mutex mutex_;
  std::list<Served> served_;  // MPI attributes point to its elements
  std::atomic<std::uint64_t> forgotten_ = 0;
  std::map<std::vector<int>, ServedSizes> measured_;  // by the host of each rank
  std::map<void*, SharedBuffer<std::byte>> allocated_;
};

}  // namespace ddl::mpi
