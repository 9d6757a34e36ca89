#include "collectives/timeline/event_ring.hpp"

#include <new>
#include <span>
#include <utility>

namespace ddl::collectives {
namespace {

void repeat(const Event& event, std::vector<Event>& calls) {
  Event call = calls.back();
  for (const RepeatFacts::Times& times :
       std::span(event.facts.repeats.times).first(event.facts.repeats.calls)) {
    call.begin = call.facts.call.called = call.end + times.pause;
    call.end = call.begin + times.length;
    ++call.facts.call.sequence;
    calls.push_back(call);
  }
}

}  // namespace

// The oldest may be repeats of a call that is not here any more, and a block is begun with one event.
EventRing::EventRing(std::size_t most)
    : most_blocks_((most + RepeatFacts::most_in_a_row + block_events - 1) / block_events + 1) {
  blocks_.push_back(std::make_unique<Block>());
  newest_ = blocks_.back().get();
}

void EventRing::next_block() {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Block> next(blocks_.size() < most_blocks_ ? new (std::nothrow) Block : nullptr);
  if (!next) {
    next = std::move(blocks_.front());
    blocks_.pop_front();
    next->count.store(0, std::memory_order_relaxed);
    dropped_ += std::exchange(next->stands_for, 0);
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
    for (const Event& event : std::span(block->events.data(), count)) {
      if (event.kind != Event::Kind::repeats) {
        kept.events.push_back(event);
      } else if (kept.events.empty()) {
        kept.dropped += events_in(event);  // what they repeat is not here any more
      } else {
        repeat(event, kept.events);
      }
    }
  }
  return kept;
}

}  // namespace ddl::collectives
