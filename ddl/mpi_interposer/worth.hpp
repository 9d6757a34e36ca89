#pragma once

#include <cstddef>

#include "ddl/mpi_interposer/tally.hpp"

namespace ddl::mpi {

/// Where a call takes place, as far as all ranks know it alike.
struct CallSize {
  std::size_t bytes = 0;  ///< Of the largest buffer of a rank.
  int ranks = 1;
  int hosts = 1;
};

/// Whether the engine is at least about as fast as MPI for calls of this size on memory that the ranks do not
/// share: measured against Open MPI 4.1 with `benchmarks/mpi_program.py` (its table is in the README).
bool is_worth_serving(Function function, const CallSize& size) noexcept;

}  // namespace ddl::mpi
