#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ddl/log.hpp"

namespace ddl::mpi {

/// MPI's functions that the engine may serve; `i...` are the non-blocking ones.
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

/// Why a call was left to MPI. The same on all ranks of its communicator.
enum class PassedOn : std::uint8_t {
  communicator,       ///< Of one process, of others than MPI_COMM_WORLD's, or between two groups.
  not_open,           ///< A non-blocking call on a communicator that has not been opened yet.
  type_or_operation,  ///< The engine has none like that.
  counts,             ///< Ranks' shares of a reduce-scatter that are too different.
  slower,             ///< MPI is faster at calls of this size.
  no_thread,          ///< A non-blocking call where the engine has no thread of its own.
  arguments,          ///< MPI says what is wrong with them.
};

/// What has been served, and what has not. Any thread.
class Tally {
 public:
  void served(Function function, std::size_t bytes) noexcept;
  /// Logs the first of each kind, for those who debug.
  void passed_on(Function function, PassedOn reason, Log& log);
  /// A line for each function that was called.
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
