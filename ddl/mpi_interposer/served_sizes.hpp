#pragma once

#include <mpi.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ddl/topology/as_index.hpp"

namespace ddl {
class Context;
}

namespace ddl::collectives {
class CommunicatorImpl;
}

namespace ddl::mpi {

/// The MPI functions that the engine may serve.
enum class Function : std::uint8_t {
  allreduce,
  bcast,
  reduce_scatter,
  reduce_scatter_block,
  allgather,
  reduce,
};
inline constexpr std::size_t functions = 6;

/// The sizes of each function's calls that the engine serves on a communicator. The same on all of its ranks.
class ServedSizes {
 public:
  static ServedSizes all() noexcept;
  /// Those at which the engine took at most 0.95 of MPI's time when both were tried, from 16 bytes to
  /// 4 MiB, each call after a barrier, by the medians of the slowest ranks' times. Collective
  /// over `communicator`, whose ranks are `engine`'s, in memory as `ProgramMemory` would have it. Takes some
  /// hundredths of a second on a host; over a slow network no more sizes are tried after a second, and those
  /// that are left are served if the one before them is. Throws what a collective throws.
  static ServedSizes measured(collectives::CommunicatorImpl& engine, MPI_Comm communicator,
                              const Context& context);

  /// `bytes`: of a rank's largest buffer, which is the same on all ranks.
  [[nodiscard]] bool include(Function function, std::size_t bytes) const noexcept {
    return (by_function_[as_index(function)] >> (std::bit_width(bytes) % 64) & 1U) != 0;
  }

 private:
  /// A bit for each bit width of the bytes.
  std::array<std::uint64_t, functions> by_function_ = {};
};

}  // namespace ddl::mpi
