#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>

#include "collectives/memory/mapping.hpp"

namespace ddl::collectives {

/// Hands out blocks of a range of shared memory: small ones from its start on, large ones (`large` bytes or
/// more) from its end. What it knows of them is kept outside the range, where no other process can reach it.
///
/// First fit, O(free blocks). Any thread.
class Heap {
 public:
  static constexpr std::size_t large = std::size_t{1} << 20;
  static constexpr std::size_t small_alignment = 64;
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t large_alignment = std::size_t{2} << 20;
  /// An all-reduce of 4 KiB takes 1% longer where they lie in two pages.
  static constexpr std::size_t alignment_of(std::size_t bytes) noexcept {
    if (bytes >= large) return large_alignment;
    return bytes >= page ? page : small_alignment;
  }

  /// The range must hold zeros, be aligned to `large_alignment`, and be mapped from a file in memory.
  Heap(std::byte* data, std::size_t bytes);

  /// Zeros; null if there is no such room. Large blocks may be given huge pages by the system.
  [[nodiscard]] void* allocate(std::size_t bytes);
  /// The pages of a large block go back to the system. Null is allowed; what `allocate` has not returned is
  /// not.
  void release(void* data) noexcept;

 private:
  using Blocks = std::map<std::size_t, std::size_t>;  // offset, bytes

  /// Takes [offset, offset + bytes) from a free block.
  void take(Blocks::iterator free, std::size_t offset, std::size_t bytes);
  Blocks::iterator place_low(std::size_t bytes, std::size_t alignment, std::size_t& offset);
  Blocks::iterator place_high(std::size_t bytes, std::size_t& offset);

  std::byte* const data_;
  std::mutex mutex_;
  Blocks free_;
  Blocks used_;
  std::size_t written_ = 0;  // small blocks have been here; beyond, everything is zeros
};

/// Blocks of this process's own memory, with the alignments of `Heap`. Any thread.
class ProcessHeap {
 public:
  /// Zeros; null if there is no more.
  [[nodiscard]] void* allocate(std::size_t bytes);
  /// Null is allowed.
  void release(void* data) noexcept;

 private:
  std::mutex mutex_;
  std::unordered_map<void*, Mapping> large_;
};

}  // namespace ddl::collectives
