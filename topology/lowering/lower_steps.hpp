#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ddl/topology/schedule.hpp"
#include "topology/lowering/partition.hpp"

namespace ddl::topology {

/// Chunks take turns in so much scratch. More would only let more chunks be in the same phase at once.
constexpr std::size_t chunks_in_scratch = 4;

/// Collects one rank's steps, chunk by chunk and phase by phase, and brings them into the order of their
/// rounds. Empty ranges are passed over.
class StepList {
 public:
  explicit StepList(std::size_t count) : count_(count) {}

  void start_chunk(int chunk);
  /// Rounds given from here on count from `first_round` of the chunk; scratch is taken anew.
  void start_phase(int phase, int first_round);

  void send(int round, int peer, Range range);
  void send(int round, int peer, std::span<const Range> ranges);
  void receive(int round, int peer, Range range);
  void receive(int round, int peer, std::span<const Range> ranges);
  void receive_reduce(int round, int peer, Range range);
  void receive_reduce(int round, int peer, std::span<const Range> ranges);
  /// target = target op source
  void reduce(int round, Range target, std::size_t source);
  void copy(int round, Range target, std::size_t source);
  void finish(int round, Range range);
  /// Scratch for `size` elements. Other phases of the chunk use the same, as do other chunks.
  Range take_scratch(std::size_t size);

  /// Steps by round + chunk, then chunk, then as they were given.
  Program in_order() &&;

 private:
  void add(StepKind kind, int round, int peer, Range range, std::size_t source = 0);

  std::size_t count_;
  std::uint16_t chunk_ = 0;
  std::uint8_t phase_ = 0;
  int first_round_ = 0;
  std::size_t scratch_taken_ = 0;
  std::size_t scratch_ = 0;  // of a chunk
  std::vector<Step> steps_;
  std::vector<std::uint32_t> times_;  // of each step
};

}  // namespace ddl::topology
