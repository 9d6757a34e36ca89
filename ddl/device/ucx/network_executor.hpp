#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "collectives/device/network_body.hpp"
#include "collectives/executor/operation_state.hpp"
#include "collectives/transports/network/network.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Runs programs on a device's memory, one at a time: the network sends and receives it, kernels and copies
/// on a stream of the executor's do the rest. A kernel is queued when those that it depends on are; a send
/// waits until the device has done them. One thread, on which the device is selected.
class NetworkExecutor {
 public:
  static constexpr std::size_t block_bytes = std::size_t{512} << 10;  ///< Longest message.
  static constexpr std::size_t blocks = 32;                           ///< For what is to be reduced.

  /// Refers to all of them. Streams that wait at the gate see that the thread goes on. `scratch_bytes`: that
  /// programs take at most. Throws `unsupported` if the device has no more memory.
  NetworkExecutor(collectives::Network& network, collectives::device::Gate& gate, const GroupMembers& members,
                  std::size_t scratch_bytes);
  NetworkExecutor(const NetworkExecutor&) = delete;
  NetworkExecutor& operator=(const NetworkExecutor&) = delete;

  /// Returns when the device has done all of the call's program, whose elements are all in the output once
  /// they are written. Throws `timeout` and `mismatch`, naming ranks, `peer_failed`, `transport`, `internal`,
  /// and Ended. Then the network must be abandoned before this goes.
  void run(const collectives::Call& call);
  /// Thrown by what waits once `end` has been called.
  struct Ended {};
  /// Moves the network on until the mark has reached `value`. Throws `internal` with what CUDA says if the
  /// device is lost.
  void await(const StreamMark& mark, std::uint64_t value);
  /// The same until what is queued on the stream is done.
  void wait_for_stream();
  /// Any thread.
  void end() noexcept { ended_ = true; }
  [[nodiscard]] bool has_ended() const noexcept { return ended_; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }

 private:
  struct Queued {
    std::uint32_t step;
    std::uint64_t mark;
  };
  static constexpr std::size_t most_queued = 64;
  static constexpr std::size_t most_sending = 64;

  /// What may bring what is waited for.
  enum class Awaited { device, network };
  void take_turn(bool moved, Awaited awaited);
  void rest(Awaited awaited);
  [[nodiscard]] collectives::Clock::duration idle() const;

  void start(const collectives::Call& call);
  bool run_ready();
  void transfer(std::uint32_t index);
  void queue(std::uint32_t index);
  void queued(std::uint32_t index);
  void post_receives();
  bool sweep_transfers();
  bool sweep_stream();
  void satisfy(std::uint32_t index, bool transfers);
  void look_for_trouble();
  /// Throws if the device is lost.
  void require_alive() const { static_cast<void>(is_done(stream())); }
  [[nodiscard]] std::string awaited_ranks() const;
  [[noreturn]] void throw_transfer_failed(std::uint32_t index) const;

  collectives::Network& network_;
  collectives::device::Gate& gate_;
  const GroupMembers& members_;
  const std::size_t scratch_bytes_;
  collectives::BlockPool receiving_;
  const Stream stream_;
  StreamMark done_;  // of what is queued
  std::uint64_t marked_ = 0;

  std::atomic<bool> ended_ = false;
  std::uint32_t idle_turns_ = 0;  // in a row, in which nothing has moved
  collectives::Clock::time_point idle_since_ = {};

  collectives::OperationState state_;
  std::deque<Queued> queued_;  // on the stream, in its order
};

}  // namespace ddl::device
