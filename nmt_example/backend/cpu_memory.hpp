#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace nmt::cpu {

/// Zero-filled, aligned to 64 bytes. Asks for 2 MiB pages where they fit: products with few rows wait for
/// their parameters, and a processor fetches these ahead only within a page.
inline std::shared_ptr<void> zeroed_memory(std::size_t bytes) {
  constexpr std::size_t cache_line = 64, large_page = std::size_t{2} << 20;
  const std::size_t alignment = bytes >= large_page ? large_page : cache_line;
  // calloc's large blocks are fresh pages of zeros that take no memory until they are touched.
  void* const block = std::calloc(bytes + alignment, 1);
  if (block == nullptr) throw std::bad_alloc();
  void* aligned = block;
  std::size_t space = bytes + alignment;
  std::align(alignment, bytes, aligned, space);
  if (bytes >= large_page) madvise(aligned, bytes / large_page * large_page, MADV_HUGEPAGE);  // a hint
  return {aligned, [block](void*) { std::free(block); }};
}

}  // namespace nmt::cpu
