#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/timeline/event.hpp"

namespace ddl::collectives {

/// The newest events of one thread, which adds to it without a lock but for one in 1024 events. Any thread
/// may read meanwhile.
class EventRing {
 public:
  static constexpr std::size_t block_events = 1024;

  explicit EventRing(std::size_t most);

  /// Of its own thread alone.
  void add(const Event& event) {
    if (used_ == block_events) next_block();
    newest_->events[used_] = event;
    newest_->stands_for += events_in(event);
    newest_->count.store(++used_, std::memory_order_release);
  }
  /// So many more are to come soon: their memory is fetched meanwhile. Of the ring's thread.
  void expect(std::size_t events) const noexcept {
    for (std::size_t i = used_; i < std::min(used_ + events, block_events); ++i) {
      __builtin_prefetch(&newest_->events[i], 1);
    }
  }

  struct Kept {
    /// At least the newest `most`, oldest first; for repeats what they stand for.
    std::vector<Event> events;
    std::uint64_t dropped = 0;  ///< Older ones.
  };
  [[nodiscard]] Kept kept() const;

 private:
  struct Block {
    std::atomic<std::size_t> count = 0;
    std::uint64_t stands_for = 0;  // events; of the thread that adds
    std::array<Event, block_events> events;
  };

  void next_block();

  const std::size_t most_blocks_;
  std::size_t used_ = 0;  // of the newest
  Block* newest_ = nullptr;
  mutable std::mutex mutex_;  // of what follows; a block that is read is not begun anew
  std::deque<std::unique_ptr<Block>> blocks_;
  std::uint64_t dropped_ = 0;
};

}  // namespace ddl::collectives
