#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "collectives/timeline/event.hpp"

namespace ddl::collectives {

/// The newest events of one thread, which adds to it without a lock but for one in 1024 events. Any thread
/// may read meanwhile.
class EventRing {
 public:
  static constexpr std::size_t block_events = 1024;
  static constexpr std::size_t most_repeats = 128;

  explicit EventRing(std::size_t most);

  // Of its own thread alone.
  void add(const Event& event) {
    if (used_ == block_events) next_block();
    write(event);
    publish(1, 1);
  }
  /// A call and `most_repeats` others like it at most: 4 bytes each, 8 where one of the times takes more than
  /// 16 bits.
  void add(const Event& call, std::span<const RepeatedCall> repeats);

  struct Kept {
    std::vector<Event> events;  ///< At least the newest `most`, oldest first.
    std::uint64_t dropped = 0;  ///< Older ones.
  };
  [[nodiscard]] Kept kept() const;

 private:
  /// As many times 64 bytes: events, each followed by its repeats. Written as far as `used`.
  struct Block {
    std::atomic<std::size_t> used = 0;
    std::uint64_t events = 0;  // of the thread that adds
    alignas(Event) std::array<std::byte, block_events * sizeof(Event)> memory;
  };

  void next_block();
  [[nodiscard]] std::byte* unused() const noexcept { return newest_->memory.data() + used_ * sizeof(Event); }
  void write(const Event& event) const noexcept { std::memcpy(unused(), &event, sizeof event); }
  void publish(std::size_t slots, std::uint64_t events) noexcept {
    newest_->events += events;
    newest_->used.store(used_ += slots, std::memory_order_release);
  }

  const std::size_t most_;
  std::size_t used_ = 0;  // of the newest
  Block* newest_ = nullptr;
  mutable std::mutex mutex_;  // of what follows; a block that is read is not begun anew
  std::deque<std::unique_ptr<Block>> blocks_;
  std::uint64_t before_newest_ = 0;  // events in blocks
  std::uint64_t dropped_ = 0;
};

}  // namespace ddl::collectives
