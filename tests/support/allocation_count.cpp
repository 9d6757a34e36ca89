#include "support/allocation_count.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

// In its own file: a compiler that sees both operators warns about calling free() for memory from new.

namespace {
std::atomic<long> count{0};
}

namespace ddl::test {
long allocation_count() noexcept { return count; }
}  // namespace ddl::test

#ifndef DDL_SANITIZED
void* operator new(std::size_t size) {
  ++count;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  ++count;
  const auto align = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif
