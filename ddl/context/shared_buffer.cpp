#include "ddl/shared_buffer.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "ddl/context/context_state.hpp"
#include "ddl/error.hpp"

namespace ddl {

SharedBuffer<std::byte> allocate_bytes(Context& context, std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("allocate: found {} bytes or more, which no memory can hold", bytes));
  }
  if (bytes == 0) return {};
  std::shared_ptr<void> memory = context.state_->job->engine().allocate(bytes);
  if (!memory) {
    throw Error(ErrorCode::transport,
                fmt::format("allocate: the system has no {} bytes of memory left for this rank", bytes));
  }
  return {std::move(memory), bytes};
}

}  // namespace ddl
