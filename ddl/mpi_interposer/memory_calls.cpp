// malloc and its relatives. Small blocks are the business of the next allocator, which is the C library's
// unless the program has another one. Large blocks are that allocator's, too, but consist of whole pages, and
// ProgramMemory knows them.

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ddl/mpi_interposer/program_memory.hpp"

namespace ddl::mpi {
namespace {

struct Allocator {
  void* (*malloc)(std::size_t);
  void (*free)(void*);
  void* (*calloc)(std::size_t, std::size_t);
  void* (*realloc)(void*, std::size_t);
  void* (*memalign)(std::size_t, std::size_t);
  int (*posix_memalign)(void**, std::size_t, std::size_t);
  void* (*aligned_alloc)(std::size_t, std::size_t);
};

Allocator next_allocator;
std::atomic<bool> is_found = false;
[[gnu::tls_model("initial-exec")]] thread_local constinit bool is_looking = false;

template <typename Function>
void find(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool find_allocator() {
  if (is_looking) return false;
  is_looking = true;
  // Several threads may find the same.
  find(next_allocator.malloc, "malloc");
  find(next_allocator.free, "free");
  find(next_allocator.calloc, "calloc");
  find(next_allocator.realloc, "realloc");
  find(next_allocator.memalign, "memalign");
  find(next_allocator.posix_memalign, "posix_memalign");
  find(next_allocator.aligned_alloc, "aligned_alloc");
  is_looking = false;
  is_found.store(true, std::memory_order_release);
  return true;
}

/// Null while the dynamic linker, looking for it, allocates memory: it does without.
const Allocator* next() {
  return is_found.load(std::memory_order_acquire) || find_allocator() ? &next_allocator : nullptr;
}

/// A block of `allocate`, which gets an alignment and a number of bytes; of whole pages, if it is large.
template <typename Allocate>
void* allocate_pages(std::size_t alignment, std::size_t bytes, Allocate allocate) {
  ProgramMemory& memory = ProgramMemory::of_process();
  if (bytes < memory.least_block() || bytes > SIZE_MAX / 2) return allocate(alignment, bytes);
  void* const block = allocate(std::max(alignment, memory.page()), memory.whole_pages(bytes));
  if (block != nullptr) memory.add(block, bytes);
  return block;
}

bool is_small(std::size_t bytes) { return bytes < ProgramMemory::smallest_block; }

bool may_be_large(const void* data) {
  return data != nullptr && reinterpret_cast<std::uintptr_t>(data) % ProgramMemory::smallest_page == 0;
}

/// The largest block that was freed, up to the size that glibc may keep.
std::atomic<std::size_t> largest_freed = 0;

/// Lets glibc keep a block as large as one that was freed, as it would without this library. It has blocks
/// from mmap until the largest that was freed is as large, and an aligned one takes a page more than is
/// counted when it is freed: it would never keep any.
void keep_such_blocks(const Allocator& allocator, std::size_t bytes) {
  constexpr std::size_t most_kept = std::size_t{32} << 20;
  if (bytes <= largest_freed.load(std::memory_order_relaxed) || bytes > most_kept) return;
  largest_freed.store(bytes, std::memory_order_relaxed);
  allocator.free(allocator.malloc(bytes + 3 * ProgramMemory::of_process().page()));
}

void* allocate_zeros(const Allocator& allocator, std::size_t bytes) {
  bool is_zero = false;
  void* const block = allocate_pages(1, bytes, [&](std::size_t alignment, std::size_t whole) {
    is_zero = alignment == 1;
    return is_zero ? allocator.calloc(1, whole) : allocator.memalign(alignment, whole);
  });
  if (block == nullptr || is_zero) return block;
  const std::size_t whole = ProgramMemory::of_process().whole_pages(bytes);
  // Such a block is new from the system, unless the allocator is another one. Written to, it would take up
  // memory.
  const bool is_new = bytes > largest_freed.load(std::memory_order_relaxed);
  if (!is_new || madvise(block, whole, MADV_DONTNEED) != 0) std::memset(block, 0, whole);
  return block;
}

}  // namespace
}  // namespace ddl::mpi

using namespace ddl::mpi;

extern "C" {

[[gnu::visibility("default")]] void* malloc(std::size_t bytes) {
  const Allocator* const allocator = next();
  if (allocator == nullptr) return nullptr;
  if (is_small(bytes)) return allocator->malloc(bytes);
  return allocate_pages(1, bytes, [&](std::size_t alignment, std::size_t whole) {
    return alignment == 1 ? allocator->malloc(whole) : allocator->memalign(alignment, whole);
  });
}

[[gnu::visibility("default")]] void* calloc(std::size_t count, std::size_t size) {
  const Allocator* const allocator = next();
  if (allocator == nullptr) return nullptr;
  std::size_t bytes = 0;
  const bool is_too_large = __builtin_mul_overflow(count, size, &bytes);
  return is_too_large || is_small(bytes) ? allocator->calloc(count, size) : allocate_zeros(*allocator, bytes);
}

[[gnu::visibility("default")]] void* realloc(void* data, std::size_t bytes) {
  const Allocator* const allocator = next();
  if (allocator == nullptr) return nullptr;
  if (data == nullptr) return malloc(bytes);
  if (may_be_large(data)) ProgramMemory::of_process().remove(data, true);
  return allocator->realloc(data, bytes);
}

[[gnu::visibility("default")]] void free(void* data) {
  const std::size_t bytes = may_be_large(data) ? ProgramMemory::of_process().remove(data, false) : 0;
  const Allocator* const allocator = next();
  if (allocator == nullptr) return;
  allocator->free(data);
  keep_such_blocks(*allocator, bytes);
}

[[gnu::visibility("default")]] void* memalign(std::size_t alignment, std::size_t bytes) {
  const Allocator* const allocator = next();
  return allocator == nullptr ? nullptr : allocate_pages(alignment, bytes, allocator->memalign);
}

[[gnu::visibility("default")]] void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  const Allocator* const allocator = next();
  return allocator == nullptr ? nullptr : allocate_pages(alignment, bytes, allocator->aligned_alloc);
}

[[gnu::visibility("default")]] int posix_memalign(void** data, std::size_t alignment, std::size_t bytes) {
  const Allocator* const allocator = next();
  if (allocator == nullptr) return ENOMEM;
  int error = 0;
  void* const block = allocate_pages(alignment, bytes, [&](std::size_t aligned, std::size_t whole) {
    void* allocated = nullptr;
    error = allocator->posix_memalign(&allocated, aligned, whole);
    return error == 0 ? allocated : nullptr;
  });
  if (error == 0) *data = block;
  return error;
}

}  // extern "C"
