#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// The number of a step in a schedule: rank by rank, each rank's steps in list order.
using StepId = std::uint32_t;
constexpr StepId no_step = UINT32_MAX;

/// Numbers the steps of a schedule, which must outlive this.
class StepNumbers {
 public:
  /// The schedule must have fewer than `no_step` steps and 2^31 ranks.
  explicit StepNumbers(const Schedule& schedule);

  [[nodiscard]] const Schedule& schedule() const noexcept { return schedule_; }
  [[nodiscard]] StepId size() const noexcept { return begin_.back(); }
  /// The first step of a rank; `size` for the rank after the last one.
  [[nodiscard]] StepId first(std::size_t rank) const { return begin_[rank]; }
  [[nodiscard]] int rank(StepId id) const { return rank_[id]; }
  [[nodiscard]] const Program& program(StepId id) const { return schedule_.ranks[as_index(rank_[id])]; }
  [[nodiscard]] std::uint32_t index(StepId id) const { return id - begin_[as_index(rank_[id])]; }
  [[nodiscard]] const Step& operator[](StepId id) const { return program(id).steps[index(id)]; }
  /// The first step of the run that holds a step, and the step after that run.
  [[nodiscard]] StepId begin_of_run(StepId id) const {
    const std::uint32_t own = index(id);
    return id - own + static_cast<StepId>(program(id).begin_of_run(own));
  }
  [[nodiscard]] StepId end_of_run(StepId id) const {
    const std::uint32_t own = index(id);
    return id - own + static_cast<StepId>(program(id).end_of_run(own));
  }
  /// "rank 2, step 7 (send [0, 4) to 3)"
  [[nodiscard]] std::string name(StepId id) const;

 private:
  const Schedule& schedule_;
  std::vector<StepId> begin_;  // ranks + 1
  std::vector<std::int32_t> rank_;
};

/// All messages from one rank to another, in order.
struct Stream {
  int from = 0;
  int to = 0;
  std::uint32_t first = 0;  ///< Number of its first transfer.
  std::uint32_t transfers = 0;
};

/// The transfers of a schedule: pairs of a send and its receive. O(steps).
class Streams {
 public:
  static constexpr std::uint32_t none = UINT32_MAX;

  /// Peers must be other ranks of the schedule.
  explicit Streams(const StepNumbers& steps);

  /// Describes a send or receive that has no match of its length. Unless it is empty, nothing else is valid.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

  [[nodiscard]] std::span<const Stream> all() const noexcept { return streams_; }
  [[nodiscard]] std::uint32_t transfers() const noexcept { return static_cast<std::uint32_t>(sends_.size()); }
  /// The two steps of a transfer.
  [[nodiscard]] StepId send(std::uint32_t transfer) const { return sends_[transfer]; }
  [[nodiscard]] StepId receive(std::uint32_t transfer) const { return receives_[transfer]; }

  /// The transfer of a step, and its stream; `none` for a local step.
  [[nodiscard]] std::uint32_t transfer(StepId id) const { return transfer_of_[id]; }
  [[nodiscard]] std::uint32_t stream(StepId id) const {
    return transfer_of_[id] == none ? none : stream_of_[transfer_of_[id]];
  }
  /// The receive of a send, or the send of a receive; `no_step` for a local step.
  [[nodiscard]] StepId partner(StepId id) const {
    const std::uint32_t transfer = transfer_of_[id];
    if (transfer == none) return no_step;
    return sends_[transfer] == id ? receives_[transfer] : sends_[transfer];
  }
  /// The rank's next step of the same stream, or `no_step`.
  [[nodiscard]] StepId next(StepId id) const {
    const std::uint32_t transfer = transfer_of_[id];
    if (transfer == none) return no_step;
    const Stream& stream = streams_[stream_of_[transfer]];
    if (transfer + 1 == stream.first + stream.transfers) return no_step;
    return sends_[transfer] == id ? sends_[transfer + 1] : receives_[transfer + 1];
  }

 private:
  /// Both return what is wrong. `match` sets `transfer_of_` to streams, `list_transfers` to transfers.
  std::string match(const StepNumbers& steps);
  std::string list_transfers(const StepNumbers& steps);

  std::vector<Stream> streams_;
  std::vector<std::uint32_t> transfer_of_;  // by step
  std::vector<std::uint32_t> stream_of_;    // by transfer
  std::vector<StepId> sends_;
  std::vector<StepId> receives_;
  std::string problem_;
};

}  // namespace ddl::topology
