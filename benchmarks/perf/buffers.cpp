#include "perf/buffers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ddl/error.hpp"

namespace perf {

using ddl::topology::Collective;

namespace {

constexpr std::size_t page = 4096;

std::shared_ptr<void> plain_memory(std::size_t bytes) {
  const std::size_t rounded = (bytes + page - 1) / page * page;
  void* memory = std::aligned_alloc(page, rounded);
  if (memory == nullptr) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("there is no memory for a buffer of {} bytes; give a smaller -e", bytes));
  }
  std::memset(memory, 0, rounded);  // touches all pages before the timing
  return {memory, [](void* pointer) { std::free(pointer); }};
}

}  // namespace

Buffers::Buffers(ddl::Context& context, Collective collective, std::size_t most_bytes, bool registered)
    : collective_(collective), rank_(static_cast<std::size_t>(context.rank())) {
  const std::size_t whole = std::max<std::size_t>(most_bytes, 1);
  const auto ranks = static_cast<std::size_t>(context.size());
  const std::size_t piece = whole / ranks + sizeof(double);
  const auto make = [&](std::size_t bytes) -> Memory {
    return registered ? allocate_bytes(context, bytes).release() : plain_memory(bytes);
  };
  input_ = make(collective == Collective::all_gather ? piece : whole);
  output_ = make(collective == Collective::reduce_scatter ? piece : whole);
}

Call Buffers::call(const Shape& shape, ddl::DataType type, ddl::ReduceOp op, int root, bool in_place) const {
  Call call{collective_, bytes_of(input_), bytes_of(output_), shape.count, type, op, root, in_place};
  if (!in_place) return call;
  const std::size_t own_piece = rank_ * shape.count * size_of(type);
  switch (collective_) {
    case Collective::reduce_scatter:
      call.output = bytes_of(input_) + own_piece;
      break;
    case Collective::all_gather:
      call.input = call.output + own_piece;
      break;
    default:
      call.input = call.output;
      break;
  }
  return call;
}

}  // namespace perf
