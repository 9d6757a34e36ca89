#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "ddl/data_type.hpp"

namespace ddl {

class Context;

/// Owner of an array of `T` in memory that the ranks of a host share, so that collectives on it need no
/// copies. Copies of a buffer share the memory, which lives as long as the last of them, also beyond the
/// context. `allocate` makes one, filled with zeros.
template <typename T>
class SharedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  /// Empty.
  SharedBuffer() = default;
  /// Takes ownership of `memory`, which holds `size` elements; null: empty.
  SharedBuffer(std::shared_ptr<void> memory, std::size_t size) : memory_(std::move(memory)), size_(size) {}

  /// The first element; null if empty.
  [[nodiscard]] T* data() const noexcept { return static_cast<T*>(memory_.get()); }
  /// Number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return memory_ ? size_ : 0; }
  /// All elements. Valid as long as the memory is owned.
  [[nodiscard]] std::span<T> span() const noexcept { return {data(), size()}; }
  /// The first element.
  [[nodiscard]] T* begin() const noexcept { return data(); }
  /// One past the last element.
  [[nodiscard]] T* end() const noexcept { return data() + size(); }
  /// Transfers ownership of the memory to the caller; this buffer is empty afterwards.
  std::shared_ptr<void> release() && { return std::move(memory_); }
  /// Element `i`, which is below size(); not checked.
  [[nodiscard]] T& operator[](std::size_t i) const noexcept { return data()[i]; }

 private:
  std::shared_ptr<void> memory_;
  std::size_t size_ = 0;
};

/// Allocates `bytes` bytes of zeros, aligned to 64 bytes; where ranks share memory, buffers of 4 KiB and more
/// are aligned to 4 KiB. Plain memory if this rank shares memory with no other. 0 bytes: an empty buffer. Not
/// collective; any thread. Throws `invalid_argument` for more than half of the address space, and `transport`
/// if the system has no memory left.
SharedBuffer<std::byte> allocate_bytes(const Context& context, std::size_t bytes);

/// Allocates `count` zeroed elements, as `allocate_bytes` does and with its errors.
template <typename T>
SharedBuffer<T> allocate(const Context& context, std::size_t count) {
  if (count > SIZE_MAX / sizeof(T)) count = SIZE_MAX / sizeof(T);  // allocate_bytes refuses that
  SharedBuffer<std::byte> bytes = allocate_bytes(context, count * sizeof(T));
  return SharedBuffer<T>(std::move(bytes).release(), count);
}

}  // namespace ddl
