#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

#include "collectives/device/network_body.hpp"
#include "collectives/transports/network/network.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"

namespace ddl::device {

/// What the thread that drives a network does while it waits for anything.
class Turns {
 public:
  /// Thrown by `take` once `end` has been called.
  struct Ended {};

  /// Both outlive it. Streams that wait at the gate see that the thread goes on.
  Turns(collectives::Network& network, collectives::device::Gate& gate) : network_(network), gate_(gate) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// What may bring what is waited for.
  enum class Awaited { device, network };
  /// Moves the network on; after many turns in which nothing did, sleeps for some 20 us, or, if only the
  /// network is awaited, until something comes, 1 ms at most. `moved`: something else than the network has.
  void take(bool moved, Awaited awaited);
  /// Takes turns until the mark has reached `value`. Throws `internal` with what CUDA says if the device of
  /// `stream`, which is the calling thread's, is lost.
  void await(const StreamMark& mark, std::uint64_t value, cudaStream_t stream);
  /// From now on nothing has moved.
  void begin() noexcept;
  /// Nothing has, for so long. Asks the clock only when it begins to be long.
  [[nodiscard]] collectives::Clock::duration idle() const;

  /// Any thread.
  void end() noexcept { ended_ = true; }
  [[nodiscard]] bool has_ended() const noexcept { return ended_; }

 private:
  void rest(Awaited awaited);

  collectives::Network& network_;
  collectives::device::Gate& gate_;
  std::atomic<bool> ended_ = false;
  std::uint32_t idle_turns_ = 0;
  collectives::Clock::time_point idle_since_ = {};
};

}  // namespace ddl::device
