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

/// Runs programs on device memory, one at a time: the network sends and receives device memory; kernels and
/// copies on the executor's stream do the rest. A kernel is queued once the kernels that it depends on are
/// queued; a send waits until the device has completed them. For one thread, with the device selected.
class NetworkExecutor {
 public:
  static constexpr std::size_t block_bytes = std::size_t{512} << 10;  ///< Longest message.
  static constexpr std::size_t blocks = 32;                           ///< Receive buffers for receive_reduce.

  /// The arguments must outlive the executor. The thread increments a counter at `gate` while it makes turns,
  /// so that kernels that wait there know that it is alive. `scratch_bytes`: the most that a program may
  /// take. Throws `unsupported` without enough device memory.
  NetworkExecutor(collectives::Network& network, collectives::device::Gate& gate, const GroupMembers& members,
                  std::size_t scratch_bytes);
  NetworkExecutor& operator=(NetworkExecutor&&) = delete;

  /// Returns when the device has completed the call's program. Throws `timeout` and `mismatch`, naming ranks,
  /// `peer_failed`, `transport`, `internal`, and Ended. After an exception the network must be abandoned
  /// before the executor is destroyed.
  void run(const collectives::Call& call);
  /// Thrown by waiting functions after `end`.
  struct Ended {};
  /// Polls the network until `mark` has reached `value`. Throws `internal` if the device is lost.
  void await(const StreamMark& mark, std::uint64_t value);
  /// Polls the network until the work queued on the stream is complete.
  void wait_for_stream();
  /// Makes waiting functions throw Ended. Thread-safe.
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

  /// The source of the awaited progress, which decides how to sleep.
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
  StreamMark done_;  // completed steps of the stream
  std::uint64_t marked_ = 0;

  std::atomic<bool> ended_ = false;
  std::uint32_t idle_turns_ = 0;  // consecutive turns without progress
  collectives::Clock::time_point idle_since_ = {};

  collectives::OperationState state_;
  std::deque<Queued> queued_;  // steps on the stream, in its order
};

}  // namespace ddl::device
