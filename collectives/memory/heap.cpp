#include "collectives/memory/heap.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace ddl::collectives {
namespace {

// A multiple of all usual page sizes, so that a large block shares no page with another block.
constexpr std::size_t large_granule = std::size_t{64} << 10;

std::size_t up(std::size_t bytes, std::size_t granule) { return (bytes + granule - 1) / granule * granule; }

/// Leaves the range zeroed.
void give_back_pages(std::byte* data, std::size_t bytes) noexcept {
  if (madvise(data, bytes, MADV_REMOVE) != 0) std::memset(data, 0, bytes);
}

}  // namespace

Heap::Heap(std::byte* data, std::size_t bytes) : data_(data) {
  if (bytes > 0) free_.emplace(0, bytes);
}

Heap::Blocks::iterator Heap::place_low(std::size_t bytes, std::size_t alignment, std::size_t& offset) {
  return std::find_if(free_.begin(), free_.end(), [&](const auto& block) {
    offset = up(block.first, alignment);
    return offset + bytes <= block.first + block.second;
  });
}

Heap::Blocks::iterator Heap::place_high(std::size_t bytes, std::size_t& offset) {
  for (auto block = free_.end(); block != free_.begin();) {
    --block;
    const auto [start, length] = *block;
    if (length < bytes) continue;
    offset = (start + length - bytes) / large_alignment * large_alignment;
    if (offset >= start) return block;
  }
  return free_.end();
}

void Heap::take(Blocks::iterator free, std::size_t offset, std::size_t bytes) {
  const std::size_t end = free->first + free->second;
  used_.emplace(offset, bytes);
  if (offset + bytes < end) free_.emplace(offset + bytes, end - offset - bytes);
  if (offset == free->first) {
    free_.erase(free);
  } else {
    free->second = offset - free->first;
  }
}

void* Heap::allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const bool is_large = bytes >= large;
  const std::size_t length =
      is_large ? up(bytes, large_granule) : up(std::max<std::size_t>(bytes, 1), small_alignment);
  std::size_t offset = 0;
  std::size_t used_before = 0;  // bytes of the block that may not be zero
  {
    const std::lock_guard lock(mutex_);
    const auto free = is_large ? place_high(length, offset) : place_low(length, alignment_of(bytes), offset);
    if (free == free_.end()) return nullptr;
    take(free, offset, length);
    if (offset < written_) used_before = std::min(length, written_ - offset);
    if (!is_large) written_ = std::max(written_, offset + length);
  }
  std::byte* const data = data_ + offset;
  if (is_large) {
    if (used_before > 0) give_back_pages(data, length);
    madvise(data, length, MADV_HUGEPAGE);
  } else {
    std::memset(data, 0, used_before);
  }
  return data;
}

void Heap::release(void* data) noexcept {
  if (data == nullptr) return;
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(data) - data_);
  std::unique_lock lock(mutex_);
  // Moving the map node allocates nothing, so this cannot throw.
  auto node = used_.extract(offset);
  assert(!node.empty());
  if (node.empty()) return;
  if (node.mapped() >= large) {
    lock.unlock();
    give_back_pages(data_ + offset, node.mapped());
    lock.lock();
  }
  const auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + node.mapped()) {
    node.mapped() += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += node.mapped();
      return;
    }
  }
  free_.insert(std::move(node));
}

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
  Mapping mapping;  // unmapped after the lock is released
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
