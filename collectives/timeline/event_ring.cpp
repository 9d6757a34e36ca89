#include "collectives/timeline/event_ring.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace ddl::collectives {

EventRing::EventRing(std::size_t most)
    : most_blocks_(std::max<std::size_t>((most + block_events - 1) / block_events, 1) + 1) {
  blocks_.push_back(std::make_unique<Block>());
  newest_ = blocks_.back().get();
}

void EventRing::next_block() {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Block> next(blocks_.size() < most_blocks_ ? new (std::nothrow) Block : nullptr);
  if (!next) {
    next = std::move(blocks_.front());
    blocks_.pop_front();
    dropped_ += next->count.exchange(0, std::memory_order_relaxed);
  }
  blocks_.push_back(std::move(next));
  newest_ = blocks_.back().get();
  used_ = 0;
}

EventRing::Kept EventRing::kept() const {
  const std::lock_guard lock(mutex_);
  Kept kept{.events = {}, .dropped = dropped_};
  for (const std::unique_ptr<Block>& block : blocks_) {
    const std::size_t count = block->count.load(std::memory_order_acquire);
    kept.events.insert(kept.events.end(), block->events.begin(),
                       block->events.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return kept;
}

}  // namespace ddl::collectives
