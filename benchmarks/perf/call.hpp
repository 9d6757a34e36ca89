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

  /// In place, whatever that means for the collective.
  bool in_place = false;
};

/// How many elements a call has, by the size that nccl-tests would print.
struct Shape {
  std::size_t count = 0;  ///< What a call is given: a piece of reduce_scatter and all_gather.
  std::size_t input = 0;  ///< Elements of a rank's input and output.
  std::size_t output = 0;
  std::size_t whole = 0;  ///< The larger of them; times the element's size it is what the size column says.
};

/// The most whole elements that `bytes` bytes hold; for reduce_scatter and all_gather a multiple of `ranks`.
Shape shape_of(ddl::topology::Collective collective, std::size_t bytes, ddl::DataType type, int ranks);

/// busbw / algbw among n ranks: what the busiest link of a ring carries of a byte (nccl-tests,
/// PERFORMANCE.md).
double bus_factor(ddl::topology::Collective collective, int ranks) noexcept;

void run(ddl::Communicator& communicator, const Call& call);

}  // namespace perf
