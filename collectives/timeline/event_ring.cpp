#include "collectives/timeline/event_ring.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace ddl::collectives {
namespace {

/// A call's times as a ring keeps them.
template <class Ticks>
struct Times {
  Ticks pause;
  Ticks length;
};
using NarrowTimes = Times<std::uint16_t>;
using WideTimes = Times<std::uint32_t>;

template <class Ticks>
void pack(std::span<const RepeatedCall> calls, std::byte* to) {
  for (const RepeatedCall& call : calls) {
    const Times<Ticks> times{static_cast<Ticks>(call.pause), static_cast<Ticks>(call.length)};
    std::memcpy(to, &times, sizeof times);
    to += sizeof times;
  }
}

/// Repeats the last of `calls`.
template <class Ticks>
void unpack(const std::byte* from, std::size_t repeats, std::vector<Event>& calls) {
  Event call = calls.back();
  for (std::size_t i = 0; i < repeats; ++i) {
    Times<Ticks> times;
    std::memcpy(&times, from + i * sizeof times, sizeof times);
    call.begin = call.facts.call.called = call.end + times.pause;
    call.end = call.begin + times.length;
    ++call.facts.call.sequence;
    calls.push_back(call);
  }
}

bool are_wide(std::span<const RepeatedCall> calls) {
  std::uint32_t all = 0;
  for (const RepeatedCall& call : calls) all |= call.pause | call.length;
  return all > std::numeric_limits<std::uint16_t>::max();
}

/// That repeats take.
std::size_t slots_of(std::size_t repeats, bool wide) {
  const std::size_t bytes = repeats * (wide ? sizeof(WideTimes) : sizeof(NarrowTimes));
  return (bytes + sizeof(Event) - 1) / sizeof(Event);
}

}  // namespace

EventRing::EventRing(std::size_t most) : most_(most) {
  blocks_.push_back(std::make_unique_for_overwrite<Block>());
  newest_ = blocks_.back().get();
}

void EventRing::add(const Event& call, std::span<const RepeatedCall> repeats) {
  const bool wide = are_wide(repeats);
  const std::size_t slots = 1 + slots_of(repeats.size(), wide);
  if (used_ + slots > block_events) next_block();
  Event first = call;
  first.facts.call.repeats = static_cast<std::uint16_t>(repeats.size());
  first.facts.call.has_wide_repeats = wide;
  write(first);
  std::byte* const rest = unused() + sizeof(Event);
  wide ? pack<std::uint32_t>(repeats, rest) : pack<std::uint16_t>(repeats, rest);
  publish(slots, 1 + repeats.size());
}

/// Takes the oldest where the others hold enough.
void EventRing::next_block() {
  const std::lock_guard lock(mutex_);
  before_newest_ += newest_->events;
  const bool are_enough = before_newest_ - blocks_.front()->events >= most_;
  std::unique_ptr<Block> next(are_enough ? nullptr : new (std::nothrow) Block);
  if (!next) {
    next = std::move(blocks_.front());
    blocks_.pop_front();
    next->used.store(0, std::memory_order_relaxed);
    const std::uint64_t dropped = std::exchange(next->events, 0);
    before_newest_ -= dropped;
    dropped_ += dropped;
  }
  blocks_.push_back(std::move(next));
  newest_ = blocks_.back().get();
  used_ = 0;
}

EventRing::Kept EventRing::kept() const {
  const std::lock_guard lock(mutex_);
  Kept kept{.events = {}, .dropped = dropped_};
  for (const std::unique_ptr<Block>& block : blocks_) {
    const std::size_t used = block->used.load(std::memory_order_acquire);
    for (std::size_t slot = 0; slot < used;) {
      const std::byte* const at = block->memory.data() + slot++ * sizeof(Event);
      Event event;
      std::memcpy(&event, at, sizeof event);
      if (event.kind != Event::Kind::call) {
        kept.events.push_back(event);
        continue;
      }
      const bool wide = std::exchange(event.facts.call.has_wide_repeats, false);
      const std::size_t repeats = std::exchange(event.facts.call.repeats, std::uint16_t{0});
      kept.events.push_back(event);
      const std::byte* const rest = at + sizeof event;
      wide ? unpack<std::uint32_t>(rest, repeats, kept.events)
           : unpack<std::uint16_t>(rest, repeats, kept.events);
      slot += slots_of(repeats, wide);
    }
  }
  return kept;
}

}  // namespace ddl::collectives
