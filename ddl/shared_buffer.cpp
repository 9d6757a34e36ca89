#include "ddl/shared_buffer.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <limits>

#include "ddl/context_state.hpp"
#include "ddl/error.hpp"

namespace ddl {
namespace {

constexpr std::size_t alignment = 64;

[[noreturn]] void refuse(std::size_t bytes) {
  throw Error(ErrorCode::transport,
              fmt::format("allocate: the system has no {} bytes of memory left for this rank", bytes));
}

/// Large blocks take up memory only where they are touched.
std::shared_ptr<void> plain_memory(std::size_t bytes) {
  void* const block = std::calloc(1, bytes + alignment);
  if (block == nullptr) refuse(bytes);
  const std::uintptr_t start = (reinterpret_cast<std::uintptr_t>(block) + alignment - 1) & ~(alignment - 1);
  return {reinterpret_cast<void*>(start), [block](void*) { std::free(block); }};
}

}  // namespace

SharedBuffer<std::byte> allocate_bytes(Context& context, std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("allocate: found {} bytes or more, which no memory can hold", bytes));
  }
  if (bytes == 0) return {};
  const std::shared_ptr<collectives::HostMemory>& memory = context.state_->memory;
  if (!memory) return {plain_memory(bytes), bytes};
  const int member = context.state_->job->engine().member();
  void* const data = memory->allocate(member, bytes);
  if (data == nullptr) refuse(bytes);
  return {std::shared_ptr<void>(data, [memory, member](void* block) { memory->release(member, block); }),
          bytes};
}

}  // namespace ddl
