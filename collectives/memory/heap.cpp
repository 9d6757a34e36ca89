#include "collectives/memory/heap.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace ddl::collectives {
namespace {

std::size_t whole_pages(std::size_t bytes) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

/// Maps `bytes` bytes aligned to a huge page, and unmaps the slack around them. Null on failure.
std::byte* reserve(std::size_t bytes, int protection) noexcept {
  const std::size_t roomy = bytes + Mapping::huge_page;
  if (roomy < bytes) {
    errno = ENOMEM;
    return nullptr;
  }
  void* memory = mmap(nullptr, roomy, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  const std::size_t before = (Mapping::huge_page - start % Mapping::huge_page) % Mapping::huge_page;
  auto* const data = static_cast<std::byte*>(memory) + before;
  if (before > 0) munmap(memory, before);
  if (before < Mapping::huge_page) munmap(data + bytes, Mapping::huge_page - before);
  return data;
}

// A multiple of all usual page sizes, so that a large block shares no page with another block.
constexpr std::size_t large_granule = std::size_t{64} << 10;

std::size_t up(std::size_t bytes, std::size_t granule) { return (bytes + granule - 1) / granule * granule; }

/// Leaves the range zeroed.
void give_back_pages(std::byte* data, std::size_t bytes) noexcept {
  if (madvise(data, bytes, MADV_REMOVE) != 0) std::memset(data, 0, bytes);
}

}  // namespace

Mapping Mapping::of_process(std::size_t bytes) noexcept {
  if (bytes > SIZE_MAX / 2) {
    errno = ENOMEM;
    return {};
  }
  bytes = whole_pages(bytes);
  std::byte* const data = reserve(bytes, PROT_READ | PROT_WRITE);
  return data == nullptr ? Mapping() : Mapping(data, bytes);
}

Mapping Mapping::of_file(int fd, std::size_t bytes) noexcept {
  if (bytes > SIZE_MAX / 2) {
    errno = ENOMEM;
    return {};
  }
  bytes = whole_pages(bytes);
  std::byte* const place = reserve(bytes, PROT_NONE);
  if (place == nullptr) return {};
  if (mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) ==
      MAP_FAILED) {
    const int error = errno;
    munmap(place, bytes);
    errno = error;
    return {};
  }
  // A core dump would read every page of the file and so allocate all of it.
  madvise(place, bytes, MADV_DONTDUMP);
  return {place, bytes};
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

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

std::shared_ptr<std::byte> process_memory(std::size_t bytes) {
  if (bytes >= Heap::large) {
    const auto mapping = std::make_shared<Mapping>(Mapping::of_process(bytes));
    if (mapping->data() == nullptr) return nullptr;
    madvise(mapping->data(), mapping->bytes(), MADV_HUGEPAGE);
    return {mapping, mapping->data()};
  }
  const std::size_t alignment = Heap::alignment_of(bytes);
  const std::size_t whole = up(std::max<std::size_t>(bytes, 1), alignment);
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(alignment, whole));
  if (data == nullptr) return nullptr;
  std::memset(data, 0, whole);
  return {data, &std::free};
}

}  // namespace ddl::collectives
