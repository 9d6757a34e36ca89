#include "ddl/device/ucx/turns.hpp"

#include <poll.h>

#include <chrono>
#include <thread>

#include "ddl/device/runtime/cuda_handles.hpp"

namespace ddl::device {
namespace {

constexpr std::uint32_t turns_before_yielding = 200;
constexpr std::uint32_t turns_before_rests = 2000;

}  // namespace

void Turns::begin() noexcept {
  idle_turns_ = 0;
  idle_since_ = collectives::Clock::now();
}

void Turns::take(bool moved, Awaited awaited) {
  if (ended_) throw Ended();
  __atomic_store_n(&gate_.beat, gate_.beat + 1, __ATOMIC_RELAXED);
  if (network_.progress() || moved) {
    idle_turns_ = 0;
    return;
  }
  if (++idle_turns_ == turns_before_yielding) idle_since_ = collectives::Clock::now();
  if (idle_turns_ > turns_before_rests) return rest(awaited);
  if (idle_turns_ > turns_before_yielding) std::this_thread::yield();
}

void Turns::await(const StreamMark& mark, std::uint64_t value, cudaStream_t stream) {
  begin();
  while (mark.value() < value) {
    take(false, Awaited::device);
    if (idle_turns_ > turns_before_rests) require_alive(stream);
  }
}

void Turns::rest(Awaited awaited) {
  if (awaited == Awaited::device || network_.event_descriptor() < 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  } else if (network_.arm()) {
    constexpr int milliseconds = 1;
    pollfd readable{network_.event_descriptor(), POLLIN, 0};
    poll(&readable, 1, milliseconds);
  }
}

collectives::Clock::duration Turns::idle() const {
  if (idle_turns_ < turns_before_yielding) return {};
  return collectives::Clock::now() - idle_since_;
}

}  // namespace ddl::device
