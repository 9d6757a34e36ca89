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

/// Whether calls of this size are served. The limits are a choice from measurements on memory that the ranks do
/// not share, against Open MPI 4.1 on two cores (`benchmarks/mpi_program.py`, table in the README): most of what
/// is served was faster there, not all of it (MPI_Allreduce of 4 ranks below 1 KiB, and of 256 KiB between hosts).
bool is_worth_serving(Function function, const CallSize& size) noexcept;

}  // namespace ddl::mpi
