#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectives/executor/operation.hpp"
#include "ddl/communicator.hpp"
#include "ddl/data_type.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::collectives {

struct Place {
  int rank = 0;
  int size = 1;
};

/// A call with checked arguments, and the places of its program's elements.
struct Request {
  CallName name;
  topology::Collective collective = topology::Collective::barrier;
  int root = 0;
  std::size_t count = 0;     ///< As passed by the caller.
  std::size_t elements = 0;  ///< The program's, which for some collectives are the pieces of all ranks.
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  Buffers buffers = {};
  /// The user's call that this call is a stage of, and the fingerprint of that call.
  struct PartOf {
    CallId id;
    std::uint32_t fingerprint = 0;
  };
  std::optional<PartOf> part_of = {};
  std::optional<DataType> wire = {};  ///< The type that travels between hosts, if it differs.
  Residual residual = {};
};

/// The calls that `ddl::Communicator` documents. Each throws `invalid_argument` for null data, overlapping
/// buffers that are not in place, more bytes than memory can hold, and an unknown root, type or operation.
Request all_reduce_request(const void* input, void* output, std::size_t count, DataType type, ReduceOp op);
Request reduce_scatter_request(Place place, const void* input, void* output, std::size_t count, DataType type,
                               ReduceOp op);
Request all_gather_request(Place place, const void* input, void* output, std::size_t count, DataType type);
Request broadcast_request(Place place, const void* input, void* output, std::size_t count, DataType type,
                          int root);
Request reduce_request(Place place, const void* input, void* output, std::size_t count, DataType type,
                       ReduceOp op, int root);
Request barrier_request() noexcept;
/// The same call on f32 sums that travels between hosts as `wire`. `residual`: the number of residual
/// elements that the call takes. Throws `invalid_argument`.
Request with_wire(Request request, const Wire& wire, std::size_t residual);

}  // namespace ddl::collectives
