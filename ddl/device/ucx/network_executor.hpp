#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "collectives/program/prepared_program.hpp"
#include "collectives/transports/network/network.hpp"
#include "ddl/data_type.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
#include "ddl/device/ucx/turns.hpp"

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

  /// Refers to all of them. `scratch_bytes`: that programs take at most. Throws `unsupported` if the device
  /// has no more memory.
  NetworkExecutor(collectives::Network& network, Turns& turns, const GroupMembers& members,
                  std::size_t scratch_bytes);
  NetworkExecutor(const NetworkExecutor&) = delete;
  NetworkExecutor& operator=(const NetworkExecutor&) = delete;

  /// Returns when the device has done all. Throws `timeout` and `mismatch`, naming ranks, `peer_failed`,
  /// `transport`, `internal`, and Turns::Ended. Then the network must be abandoned before this goes.
  void run(const Run& run);
  /// Until what is queued on the stream is done, as `run`.
  void wait_for_stream();
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }

 private:
  struct Queued {
    std::uint32_t step;
    std::uint64_t mark;
  };
  static constexpr std::size_t most_queued = 64;
  static constexpr std::size_t most_sending = 64;

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
  Turns& turns_;
  const GroupMembers& members_;
  const std::size_t scratch_bytes_;
  const DeviceBytes scratch_;
  const DeviceBytes receiving_memory_;
  const Stream stream_;
  StreamMark done_;  // of what is queued
  std::uint64_t marked_ = 0;
  std::vector<std::byte*> receiving_;  // unused blocks

  const Run* run_ = nullptr;
  std::size_t element_ = 1;
  std::size_t unfinished_ = 0;                    // runs
  std::vector<std::uint32_t> missing_;            // by run: what must be before it can begin
  std::vector<std::uint64_t> ready_;              // urgencies: a heap
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
