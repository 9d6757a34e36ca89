#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/system/processor.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"

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
/// Copies that are only read are in a ring. A receiver clears a flag after it has read one; the sender, whose
/// own range is free once it is copied, does not wait for it, unless the ring is full. The ring is so long
/// that its lines have left the second-level caches before they are written again, because a line that a
/// receiver's core still caches is slow to write: on a Zen 4, copies of 64 to 256 KiB were made and read 3
/// to 4.5 times as fast as through 256 KiB in turns.
///
/// Copies for a single receiver are in `TurnBlocks` instead, as far as there are some.
///
/// Copies that receivers write their results to are in blocks, and acknowledged by notices. There the few
/// blocks that were used last are the fastest.
class Staging {
 public:
  /// 1 until a receiver has read the copy.
  using Flag = std::atomic<std::uint8_t>;
  /// A copy, and who has not read it.
  struct Copy {
    std::byte* data = nullptr;   ///< Null: there is none.
    Flag* flags = nullptr;       ///< In the ring: one for each send that shares the copy.
    std::byte* block = nullptr;  ///< That holds a copy outside the ring.
    std::uint32_t left = 0;  ///< Sends that are not posted yet; outside the ring, that are not acknowledged.
    std::optional<std::uint32_t> turn_block = {};  ///< The number of the turn block that it is in.

    /// Whether nothing comes back from those who read it.
    [[nodiscard]] bool is_final() const noexcept { return flags != nullptr || turn_block.has_value(); }
  };

  /// `cache_bytes`: of a core's second-level cache. Takes memory when it is first needed.
  Staging(std::size_t longest_message, std::size_t cache_bytes,
          std::function<BlockPool::Slab(std::size_t bytes)> allocate)
      : blocks_(room_of(longest_message), blocks_per_slab, allocate),
        allocate_(std::move(allocate)),
        bytes_(std::max(2 * cache_bytes, least_messages * room_of(longest_message)) / page * page) {}

  /// A place for a copy of the `bytes` at `from`, which `sends` sends share; without data if copies have
  /// reached a limit and the copy may not go beyond it. `is_only_read`: a receiver does not write to it.
  [[nodiscard]] Copy take(const std::byte* from, std::size_t bytes, std::uint32_t sends, bool is_only_read,
                          bool beyond_limit) {
    Copy copy{.left = sends};
    if (is_only_read && sends <= cache_line) {
      copy.flags = reinterpret_cast<Flag*>(take_room(room_of(bytes)));
      if (copy.flags == nullptr && !beyond_limit) return {};
    }
    if (copy.flags != nullptr) {
      for (std::uint32_t i = 0; i < sends; ++i) new (copy.flags + i) Flag(1);
      unread_.push_back({copy.flags, sends, head_});
    } else {
      if (blocks_.taken() * blocks_.block_bytes() >= most_bytes_in_blocks && !beyond_limit) return {};
      copy.block = blocks_.take();
    }
    copy.data = place_in(
        (copy.flags != nullptr ? reinterpret_cast<std::byte*>(copy.flags) : copy.block) + cache_line, from);
    return copy;
  }
  /// Where in `room`, or up to a page further on, a copy of what is at `from` begins: half a page apart from
  /// it.
  static std::byte* place_in(std::byte* room, const std::byte* from) noexcept {
    const std::uintptr_t half_a_page_on = reinterpret_cast<std::uintptr_t>(from) + page / 2;
    return room + (half_a_page_on - reinterpret_cast<std::uintptr_t>(room)) % page / cache_line * cache_line;
  }
  /// Gives a copy outside the ring back.
  void give_back(Copy& copy) noexcept { blocks_.give_back(std::exchange(copy, {}).block); }

  /// Whether copies in the ring have not been read.
  [[nodiscard]] bool has_unread() {
    look_for_read();
    return !unread_.empty();
  }

 private:
  struct Unread {
    const Flag* flags;
    std::uint32_t sends;
    std::size_t end;  // of its room, as `head_`
  };

  static constexpr std::size_t page = 4096;
  static constexpr std::size_t least_messages = 6;
  static constexpr std::size_t blocks_per_slab = 4;
  /// So that copies stay in a core's cache.
  static constexpr std::size_t most_bytes_in_blocks = std::size_t{2} << 20;

  /// Room for the flags, and for `bytes` at any place in a page.
  static constexpr std::size_t room_of(std::size_t bytes) noexcept {
    return cache_line + page + (bytes + cache_line - 1) / cache_line * cache_line;
  }

  /// Null if there is none.
  std::byte* take_room(std::size_t bytes) {
    if (!ring_) {
      ring_ = allocate_(bytes_);
      std::memset(ring_.get(), 0, bytes_);  // or the first copies would wait for pages and memory
    }
    std::size_t begin = head_;
    if (begin % bytes_ + bytes > bytes_) begin += bytes_ - begin % bytes_;
    if (begin + bytes - tail_ > bytes_) look_for_read();
    if (begin + bytes - tail_ > bytes_) return nullptr;
    head_ = begin + bytes;
    return ring_.get() + begin % bytes_;
  }
  /// Frees the room of the oldest copies, as far as all receivers have read them.
  void look_for_read() {
    const auto is_read = [](const Unread& copy) {
      for (std::uint32_t i = 0; i < copy.sends; ++i) {
        if (copy.flags[i].load(std::memory_order_acquire) != 0) return false;
      }
      return true;
    };
    for (; !unread_.empty() && is_read(unread_.front()); unread_.pop_front()) tail_ = unread_.front().end;
  }

  BlockPool blocks_;
  std::function<BlockPool::Slab(std::size_t)> allocate_;
  BlockPool::Slab ring_;
  std::size_t bytes_;
  // Counts of bytes; modulo `bytes_` they are places in the ring.
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
  std::deque<Unread> unread_;
};

/// Blocks that two members write in turns: the one that has read a copy may put its own next one there. Its
/// core still caches the block's lines, so that writing them is quick. Lines that the other core has read
/// last must be taken back from it: on a Zen 5, a copy of 128 KiB took 3 us, and in turns 1.1; with one L3
/// cache for both cores 1.6 and 1.1.
class TurnBlocks {
 public:
  /// The blocks of `memory` that `self` shares with `peer`.
  TurnBlocks(const HostMemory& memory, int self, int peer) noexcept : longest_(memory.turn_bytes()) {
    for (std::size_t i = 0; i < count; ++i) {
      blocks_[i] = memory.turn_block(std::min(self, peer), std::max(self, peer), i);
    }
    const std::uint32_t first = self < peer ? 0 : count / 2;
    for (std::uint32_t i = 0; i < count / 2; ++i) read(first + i);
  }

  /// A place for a copy of the `bytes` at `from`; without data if it is too long, or the peer has all blocks.
  [[nodiscard]] Staging::Copy take(const std::byte* from, std::size_t bytes) noexcept {
    if (held_ == 0 || bytes > longest_) return {};
    const std::uint32_t block = numbers_[--held_];
    return {.data = Staging::place_in(blocks_[block], from), .left = 1, .turn_block = block};
  }
  /// This side has read the peer's copy in that block. Ignores what no peer sends.
  void read(std::uint32_t block) noexcept {
    if (block < count && held_ < count) numbers_[held_++] = block;
  }

 private:
  static constexpr std::uint32_t count = HostMemory::turn_blocks;

  std::size_t longest_;
  std::array<std::byte*, count> blocks_{};
  std::array<std::uint32_t, count> numbers_{};  // of the blocks that this side may write to; last: read last
  std::size_t held_ = 0;
};

}  // namespace ddl::collectives
