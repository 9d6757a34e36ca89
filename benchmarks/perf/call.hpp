#pragma once

#include <cstddef>

#include "ddl/communicator.hpp"
#include "ddl/topology/schedule.hpp"

namespace perf {

/// One call of a collective by one rank, with the arguments that `ddl::Communicator` takes.
struct Call {
  ddl::topology::Collective collective = ddl::topology::Collective::all_reduce;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t count = 0;
  ddl::DataType type = ddl::DataType::f32;
  ddl::ReduceOp op = ddl::ReduceOp::sum;
  int root = 0;

  /// Whether the call is in place, in the collective's sense.
  bool in_place = false;
};

/// The numbers of elements of a call.
struct Shape {
  std::size_t count = 0;  ///< The call's argument; for reduce_scatter and all_gather, of a piece.
  std::size_t input = 0;  ///< Elements of a rank's input.
  std::size_t output = 0;
  std::size_t whole = 0;  ///< The larger of input and output; the size column shows its bytes.
};

/// The shape with the most elements that fit into `bytes` bytes; for reduce_scatter and all_gather a multiple
/// of `ranks`.
Shape shape_of(ddl::topology::Collective collective, std::size_t bytes, ddl::DataType type, int ranks);

/// busbw / algbw for n ranks: the share of each byte that the busiest link of a ring carries (nccl-tests,
/// PERFORMANCE.md).
double bus_factor(ddl::topology::Collective collective, int ranks) noexcept;

void run(ddl::Communicator& communicator, const Call& call);

}  // namespace perf
