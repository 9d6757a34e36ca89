#pragma once

#include <cstddef>

#include "ddl/context.hpp"
#include "ddl/shared_buffer.hpp"
#include "perf/call.hpp"

namespace perf {

/// A rank's memory for calls of one collective up to a size: an input and an output, which also serve calls
/// in place.
class Buffers {
 public:
  /// `most_bytes`: the largest size, as in the size column. `registered`: uses memory from `ddl::allocate`.
  Buffers(ddl::Context& context, ddl::topology::Collective collective, std::size_t most_bytes,
          bool registered);

  /// The call of this shape on these buffers.
  [[nodiscard]] Call call(const Shape& shape, ddl::DataType type, ddl::ReduceOp op, int root,
                          bool in_place) const;

 private:
  using Memory = std::shared_ptr<void>;
  [[nodiscard]] static std::byte* bytes_of(const Memory& memory) noexcept {
    return static_cast<std::byte*>(memory.get());
  }

  ddl::topology::Collective collective_;
  std::size_t rank_;
  Memory input_;
  Memory output_;
};

}  // namespace perf
