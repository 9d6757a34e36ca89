#pragma once

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ddl/log.hpp"
#include "ddl/topology/as_index.hpp"

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

}  // namespace ddl::mpi
