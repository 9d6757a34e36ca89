#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "ddl/data_type.hpp"

namespace ddl {

class Context;

/// Memory that the ranks of a host share, so that collectives on it need no copies. Owns it; movable. It may
/// outlive its context. Holds zeros at first. See `allocate`.
template <typename T>
class SharedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SharedBuffer() = default;
  SharedBuffer(std::shared_ptr<void> memory, std::size_t size)
      : memory_(std::move(memory)), size_(memory_ ? size : 0) {}

  [[nodiscard]] T* data() const noexcept { return static_cast<T*>(memory_.get()); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<T> span() const noexcept { return {data(), size_}; }
  [[nodiscard]] T* begin() const noexcept { return data(); }
  [[nodiscard]] T* end() const noexcept { return data() + size_; }
  /// Hands the memory over; this is empty afterwards.
  std::shared_ptr<void> release() && {
    size_ = 0;
    return std::move(memory_);
  }
  [[nodiscard]] T& operator[](std::size_t i) const noexcept { return data()[i]; }

 private:
  std::shared_ptr<void> memory_;
  std::size_t size_ = 0;
};

/// `bytes` bytes of zeros, aligned to 64 bytes; where ranks share memory, 4 KiB and more to 4 KiB. Where this
/// rank shares memory with no other one it is plain memory. Not collective; any thread. Throws
/// `invalid_argument` for more bytes than memory could hold, `transport` if there is no more.
SharedBuffer<std::byte> allocate_bytes(const Context& context, std::size_t bytes);

/// `count` elements.
template <typename T>
SharedBuffer<T> allocate(const Context& context, std::size_t count) {
  if (count > SIZE_MAX / sizeof(T)) count = SIZE_MAX / sizeof(T);  // refused below
  SharedBuffer<std::byte> bytes = allocate_bytes(context, count * sizeof(T));
  return SharedBuffer<T>(std::move(bytes).release(), count);
}

}  // namespace ddl
