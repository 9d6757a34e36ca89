// malloc and its relatives. Small blocks are the business of the next allocator, which is the C library's
// unless the program has another one. Large blocks are that allocator's, too, but consist of whole pages, and
// ProgramMemory knows them.

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
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

/// Whether a block is to consist of whole pages.
bool is_large(std::size_t bytes) {
  return bytes >= ProgramMemory::smallest_block && bytes >= ProgramMemory::of_process().least_block() &&
         bytes <= SIZE_MAX / 2;
}

void* allocate_pages(const Allocator& allocator, std::size_t alignment, std::size_t bytes) {
  ProgramMemory& memory = ProgramMemory::of_process();
  void* const block = allocator.memalign(std::max(alignment, memory.page()), memory.whole_pages(bytes));
  if (block != nullptr) memory.add(block, bytes);
  return block;
}

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
  void* const block = allocate_pages(allocator, 1, bytes);
  if (block == nullptr) return nullptr;
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
  return is_large(bytes) ? allocate_pages(*allocator, 1, bytes) : allocator->malloc(bytes);
}

[[gnu::visibility("default")]] void* calloc(std::size_t count, std::size_t size) {
  const Allocator* const allocator = next();
  if (allocator == nullptr) return nullptr;
  std::size_t bytes = 0;
  const bool overflows = __builtin_mul_overflow(count, size, &bytes);
  return !overflows && is_large(bytes) ? allocate_zeros(*allocator, bytes) : allocator->calloc(count, size);
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
  if (allocator == nullptr) return nullptr;
  return is_large(bytes) ? allocate_pages(*allocator, alignment, bytes)
                         : allocator->memalign(alignment, bytes);
}

[[gnu::visibility("default")]] void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  const Allocator* const allocator = next();
  if (allocator == nullptr) return nullptr;
  return is_large(bytes) ? allocate_pages(*allocator, alignment, bytes)
                         : allocator->aligned_alloc(alignment, bytes);
}

[[gnu::visibility("default")]] int posix_memalign(void** data, std::size_t alignment, std::size_t bytes) {
  const Allocator* const allocator = next();
  if (allocator == nullptr) return ENOMEM;
  const bool is_valid = std::has_single_bit(alignment) && alignment % sizeof(void*) == 0;
  if (!is_valid || !is_large(bytes)) return allocator->posix_memalign(data, alignment, bytes);
  void* const block = allocate_pages(*allocator, alignment, bytes);
  if (block == nullptr) return ENOMEM;
  *data = block;
  return 0;
}

}  // extern "C"
