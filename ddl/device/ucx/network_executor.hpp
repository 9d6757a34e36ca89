#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "collectives/device/network_body.hpp"
#include "collectives/program/prepared_program.hpp"
#include "collectives/transports/network/network.hpp"
#include "ddl/data_type.hpp"
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

  /// Where a program's elements are: `input` until the program writes to them, then `target`. Addresses of
  /// elements that do not exist are only computed.
  struct Buffers {
    const std::byte* input = nullptr;
    std::byte* target = nullptr;
  };
  struct Run {
    const collectives::PreparedProgram& program;
    Buffers buffers;
    DataType type = DataType::u8;
    ReduceOp op = ReduceOp::sum;
    collectives::MessageTag tag = {};  ///< But for the message.
  };

  /// Refers to all of them. Streams that wait at the gate see that the thread goes on. `scratch_bytes`: that
  /// programs take at most. Throws `unsupported` if the device has no more memory.
  NetworkExecutor(collectives::Network& network, collectives::device::Gate& gate, const GroupMembers& members,
                  std::size_t scratch_bytes);
  NetworkExecutor(const NetworkExecutor&) = delete;
  NetworkExecutor& operator=(const NetworkExecutor&) = delete;

  /// Returns when the device has done all. Throws `timeout` and `mismatch`, naming ranks, `peer_failed`,
  /// `transport`, `internal`, and Ended. Then the network must be abandoned before this goes.
  void run(const Run& run);
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

  void start(const Run& run);
  bool run_ready();
  void transfer(std::uint32_t index);
  void queue(std::uint32_t index);
  void queued(std::uint32_t index);
  void post_receives();
  bool sweep_transfers();
  bool sweep_stream();
  void satisfy(std::uint32_t later);
  void look_for_trouble();
  [[nodiscard]] std::string awaited_ranks() const;
  [[noreturn]] void throw_transfer_failed(std::uint32_t index) const;

  [[nodiscard]] const topology::Step& step(std::uint32_t index) const { return run_->program.step(index); }
  [[nodiscard]] const collectives::StepWay& way(std::uint32_t index) const {
    return run_->program.way(index);
  }
  [[nodiscard]] std::size_t bytes_of(std::uint32_t index) const { return step(index).size() * element_; }
  [[nodiscard]] std::byte* target(std::size_t begin) const;
  [[nodiscard]] const std::byte* source(std::size_t begin, bool is_input) const;
  [[nodiscard]] collectives::MessageTag tag_of(std::uint32_t index) const;

  collectives::Network& network_;
  collectives::device::Gate& gate_;
  const GroupMembers& members_;
  const std::size_t scratch_bytes_;
  const DeviceBytes scratch_;
  const DeviceBytes receiving_memory_;
  const Stream stream_;
  StreamMark done_;  // of what is queued
  std::uint64_t marked_ = 0;
  std::vector<std::byte*> receiving_;  // unused blocks

  std::atomic<bool> ended_ = false;
  std::uint32_t idle_turns_ = 0;  // in a row, in which nothing has moved
  collectives::Clock::time_point idle_since_ = {};

  const Run* run_ = nullptr;
  std::size_t element_ = 1;
  std::size_t unfinished_ = 0;          // runs
  std::vector<std::uint32_t> missing_;  // by run: what must be before it can begin
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> ready_;  // urgencies
  std::deque<std::uint32_t> unsent_;              // ready, in their turn: sends,
  std::deque<std::uint32_t> unqueued_;            // and what the device does
  std::vector<collectives::Transfer> transfers_;  // by slot
  std::vector<std::byte*> blocks_;                // by slot: what a net_reduce receives into
  std::vector<std::uint32_t> transferring_;
  std::size_t sending_ = 0;
  std::size_t next_receive_ = 0;  // of the program's net_reduces
  std::deque<Queued> queued_;     // on the stream, in its order
};

}  // namespace ddl::device
