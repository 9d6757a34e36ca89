#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ddl/log.hpp"

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
  void served(Function function, std::size_t bytes) noexcept;
  /// Logs the first call of each function and reason at debug level 2.
  void passed_on(Function function, PassedOn reason, Log& log);
  /// Logs a line for each function that was called.
  void print(Log& log) const;

 private:
  static constexpr std::size_t reasons = 7;
  struct Counts {
    std::atomic<std::uint64_t> calls = 0;
    std::atomic<std::uint64_t> bytes = 0;
    std::array<std::atomic<std::uint64_t>, reasons> passed_on = {};
  };
  std::array<Counts, functions> counts_;
};

}  // namespace ddl::mpi
