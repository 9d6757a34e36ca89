#pragma once

#include <mpi.h>

#include <cstddef>
#include <optional>

#include "ddl/data_type.hpp"

namespace ddl::mpi {

/// What one of MPI's reductions is to the engine.
struct Reduction {
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  std::size_t each = 1;  ///< The engine's elements in one of MPI's: 2 for complex numbers.
};

/// Nothing if the engine has no such type or operation: derived types, operations of the user's, bitwise and
/// logical ones, locations, long double, 16-bit integers; unsigned integers but for sums and products, which
/// are the signed ones' bit for bit; complex numbers but for sums.
std::optional<Reduction> reduction_of(MPI_Datatype type, MPI_Op op);

/// Bytes of an element of one of MPI's own types, if they lie without gaps; 0 for all others.
std::size_t plain_bytes(MPI_Datatype type);

}  // namespace ddl::mpi
