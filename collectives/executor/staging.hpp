#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace ddl::collectives {

/// A pool of blocks of one size. The block returned last is taken first, because it may still be in a cache.
class BlockPool {
 public:
  using Slab = std::shared_ptr<std::byte>;

  BlockPool(std::size_t block_bytes, std::size_t blocks_per_slab,
            std::function<Slab(std::size_t bytes)> allocate)
      : block_bytes_(block_bytes), blocks_per_slab_(blocks_per_slab), allocate_(std::move(allocate)) {}

  [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_; }
  [[nodiscard]] std::size_t taken() const noexcept { return taken_; }

  std::byte* take() {
    if (free_.empty()) grow();
    std::byte* block = free_.back();
    free_.pop_back();
    ++taken_;
    return block;
  }
  void give_back(std::byte* block) noexcept {
    free_.push_back(block);  // grow() has reserved the capacity
    --taken_;
  }

 private:
  void grow() {
    slabs_.push_back(allocate_(block_bytes_ * blocks_per_slab_));
    free_.reserve(slabs_.size() * blocks_per_slab_);
    for (std::size_t i = blocks_per_slab_; i-- > 0;) free_.push_back(slabs_.back().get() + i * block_bytes_);
  }

  std::size_t block_bytes_;
  std::size_t blocks_per_slab_;
  std::function<Slab(std::size_t)> allocate_;
  std::vector<Slab> slabs_;
  std::vector<std::byte*> free_;
  std::size_t taken_ = 0;
};

/// Shared memory for copies of messages whose ranges are not in shared memory, for members to read.
///
/// A receiver usually clears a flag after it has read a copy, and the sender, whose own range is free once it
/// is copied, does not wait for it: the block is taken again once all flags are cleared. Copies beyond a
/// limit are acknowledged by notices, and their sends wait for them, so that a rank cannot run ahead of its
/// peers without end.
class Staging {
 public:
  /// 1 until a receiver has read the copy.
  using Flag = std::atomic<std::uint8_t>;
  /// A copy, and who has not read it.
  struct Copy {
    std::byte* data = nullptr;   ///< Null: there is none.
    std::byte* block = nullptr;  ///< That holds it.
    Flag* flags = nullptr;       ///< One for each send that shares the copy; null: all are acknowledged.
    std::uint32_t left = 0;      ///< Sends that are not posted yet; without flags, that are not acknowledged.
  };

  Staging(std::size_t longest_message, std::function<BlockPool::Slab(std::size_t bytes)> allocate)
      : pool_(longest_message + page, blocks_per_slab, std::move(allocate)) {}

  /// A place for a copy of data that begins at `from`, which `sends` sends share; without data if copies have
  /// reached the limit and it may not be passed. `may_run_ahead`: flags will do.
  [[nodiscard]] Copy take(const std::byte* from, std::uint32_t sends, bool may_run_ahead, bool beyond_limit) {
    if (unread_.size() >= blocks_per_slab || is_full()) look_for_read();
    const bool full = is_full();
    if (full && !beyond_limit) return {};
    Copy copy{.block = pool_.take(), .left = sends};
    const std::uintptr_t half_a_page_on = reinterpret_cast<std::uintptr_t>(from) + page / 2;
    const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(copy.block);
    copy.data = copy.block + (half_a_page_on - begin) % page / cache_line * cache_line;
    if (full || !may_run_ahead || sends > cache_line) return copy;
    copy.flags = reinterpret_cast<Flag*>(copy.block + pool_.block_bytes() - cache_line);
    for (std::uint32_t i = 0; i < sends; ++i) new (copy.flags + i) Flag(1);
    unread_.push_back({copy.block, copy.flags, sends});
    return copy;
  }
  /// Gives a copy without flags back.
  void give_back(Copy& copy) noexcept { pool_.give_back(std::exchange(copy, {}).block); }

  /// Whether copies with flags have not been read.
  [[nodiscard]] bool has_unread() {
    look_for_read();
    return !unread_.empty();
  }

 private:
  struct Unread {
    std::byte* block;
    const Flag* flags;
    std::uint32_t sends;
  };

  static constexpr std::size_t page = 4096;
  static constexpr std::size_t cache_line = 64;
  /// As many copies are made without a look at their flags, which are in the receivers' caches; and no more
  /// blocks than that are used while receivers keep up, so that they are warm.
  static constexpr std::size_t blocks_per_slab = 4;
  /// So that copies stay in a core's cache.
  static constexpr std::size_t most_bytes = std::size_t{2} << 20;

  [[nodiscard]] bool is_full() const noexcept { return pool_.taken() * pool_.block_bytes() >= most_bytes; }
  /// Takes back the blocks of copies that all receivers have read.
  void look_for_read() {
    std::erase_if(unread_, [&](const Unread& copy) {
      for (std::uint32_t i = 0; i < copy.sends; ++i) {
        if (copy.flags[i].load(std::memory_order_acquire) != 0) return false;
      }
      pool_.give_back(copy.block);
      return true;
    });
  }

  BlockPool pool_;
  std::vector<Unread> unread_;
};

}  // namespace ddl::collectives
