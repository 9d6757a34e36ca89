#include "collectives/timeline/event_ring.hpp"

#include <new>
#include <utility>

namespace ddl::collectives {

/// One block more than `most` events need, because one is always being filled.
EventRing::EventRing(std::size_t most) : most_blocks_((most + block_events - 1) / block_events + 1) {
  blocks_.push_back(std::make_unique_for_overwrite<Block>());
  newest_ = blocks_.back().get();
}

/// Reuses the oldest block at the limit, or if there is no memory for another one.
void EventRing::next_block() {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Block> next(blocks_.size() < most_blocks_ ? new (std::nothrow) Block : nullptr);
  if (!next) {
    next = std::move(blocks_.front());
    blocks_.pop_front();
    next->used.store(0, std::memory_order_relaxed);
    dropped_ += block_events;
  }
  blocks_.push_back(std::move(next));
  newest_ = blocks_.back().get();
  used_ = 0;
}

EventRing::Kept EventRing::kept() const {
  const std::lock_guard lock(mutex_);
  Kept kept{.events = {}, .dropped = dropped_};
  for (const std::unique_ptr<Block>& block : blocks_) {
    const auto* const first = reinterpret_cast<const Event*>(block->memory.data());
    kept.events.insert(kept.events.end(), first, first + block->used.load(std::memory_order_acquire));
  }
  return kept;
}

}  // namespace ddl::collectives
