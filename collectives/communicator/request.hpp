#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectives/executor/operation.hpp"
#include "ddl/communicator.hpp"
#include "ddl/data_type.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::collectives {

/// One rank of a communicator.
struct Place {
  int rank = 0;
  int size = 1;
};

/// A call whose arguments have been checked, and where its program's elements are.
struct Request {
  const char* name = "";
  topology::Collective collective = topology::Collective::barrier;
  int root = 0;
  std::size_t count = 0;     ///< As the caller gave it.
  std::size_t elements = 0;  ///< The program's: of all ranks' pieces together.
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  Buffers buffers = {};
  /// The call that it is a part of, if it is one, and what that one's fingerprint would be.
  struct PartOf {
    CallId id;
    std::uint32_t fingerprint = 0;
  };
  std::optional<PartOf> part_of = {};
  std::optional<DataType> wire = {};  ///< What travels between hosts, if that is another type.
  Residual residual = {};
};

/// What `ddl::Communicator` documents. Each throws `invalid_argument`: null data, buffers that overlap
/// without being in place, more bytes than memory could hold, an unknown root, type or operation.
Request all_reduce_request(const void* input, void* output, std::size_t count, DataType type, ReduceOp op);
Request reduce_scatter_request(Place place, const void* input, void* output, std::size_t count, DataType type,
                               ReduceOp op);
Request all_gather_request(Place place, const void* input, void* output, std::size_t count, DataType type);
Request broadcast_request(Place place, const void* input, void* output, std::size_t count, DataType type,
                          int root);
Request reduce_request(Place place, const void* input, void* output, std::size_t count, DataType type,
                       ReduceOp op, int root);
Request barrier_request() noexcept;
/// The same of f32 sums whose bytes travel between hosts as `wire` says. `residual`: elements that the call
/// takes. Throws `invalid_argument`.
Request with_wire(Request request, const Wire& wire, std::size_t residual);

}  // namespace ddl::collectives
