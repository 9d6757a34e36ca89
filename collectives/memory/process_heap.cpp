#include "collectives/memory/process_heap.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "collectives/memory/heap.hpp"

namespace ddl::collectives {
void* ProcessHeap::allocate(std::size_t bytes) {
  if (bytes < Heap::large) {
    const std::size_t alignment = Heap::alignment_of(bytes);
    bytes = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* const data = std::aligned_alloc(alignment, bytes);
    if (data != nullptr) std::memset(data, 0, bytes);
    return data;
  }
  Mapping mapping = Mapping::of_process(bytes);
  void* const data = mapping.data();
  if (data == nullptr) return nullptr;
  madvise(data, mapping.bytes(), MADV_HUGEPAGE);
  const std::lock_guard lock(mutex_);
  large_.emplace(data, std::move(mapping));
  return data;
}

void ProcessHeap::release(void* data) noexcept {
  Mapping mapping;  // goes away without the lock
  {
    const std::lock_guard lock(mutex_);
    const auto found = large_.find(data);
    if (found != large_.end()) {
      mapping = std::move(found->second);
      large_.erase(found);
    }
  }
  if (mapping.data() == nullptr) std::free(data);
}

}  // namespace ddl::collectives
