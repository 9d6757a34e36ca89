#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace ddl::collectives {

/// Owns mapped pages that read as zeros until they are written. Physical memory is allocated at first touch.
class Mapping {
 public:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;

  Mapping() = default;
  /// Private memory, aligned to a huge page. If the system refuses, `data` is null and errno holds the
  /// reason.
  static Mapping of_process(std::size_t bytes) noexcept;
  /// Maps an open file, which may be closed afterwards; otherwise like `of_process`.
  static Mapping of_file(int fd, std::size_t bytes) noexcept;

  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  Mapping(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Allocates blocks of a range of shared memory: small ones from its start, large ones (`large` bytes or
/// more) from its end. The bookkeeping is kept outside the range, where other processes cannot reach it.
///
/// First fit, O(free blocks). Thread-safe.
class Heap {
 public:
  static constexpr std::size_t large = std::size_t{1} << 20;
  static constexpr std::size_t small_alignment = 64;
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t large_alignment = std::size_t{2} << 20;
  /// Blocks of a page or more start at a page: a 4 KiB all-reduce takes 1% longer if its buffers straddle
  /// pages.
  static constexpr std::size_t alignment_of(std::size_t bytes) noexcept {
    if (bytes >= large) return large_alignment;
    return bytes >= page ? page : small_alignment;
  }

  /// The range must hold zeros, be aligned to `large_alignment`, and be a mapping of a memory file (memfd or
  /// tmpfs).
  Heap(std::byte* data, std::size_t bytes);

  /// Returns zeroed memory, or null if no free block fits. The system may back large blocks with huge pages.
  [[nodiscard]] void* allocate(std::size_t bytes);
  /// Returns the pages of a large block to the system. `data` must come from `allocate` or be null.
  void release(void* data) noexcept;

 private:
  using Blocks = std::map<std::size_t, std::size_t>;  // size by offset

  /// Removes [offset, offset + bytes) from the free block.
  void take(Blocks::iterator free, std::size_t offset, std::size_t bytes);
  Blocks::iterator place_low(std::size_t bytes, std::size_t alignment, std::size_t& offset);
  Blocks::iterator place_high(std::size_t bytes, std::size_t& offset);

  std::byte* const data_;
  std::mutex mutex_;
  Blocks free_;
  Blocks used_;
  std::size_t written_ = 0;  // end of all small blocks so far; memory beyond it holds zeros
};

/// A block of the process's private memory, zeroed, with the alignments of `Heap`; null if the system has
/// none left. The system may back large blocks with huge pages.
std::shared_ptr<std::byte> process_memory(std::size_t bytes);

}  // namespace ddl::collectives
