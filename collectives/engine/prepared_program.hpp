#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddl/topology/lowering.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::collectives {

/// What messages call a plan and its phases.
struct PlanNames {
  std::string plan;                 ///< One line.
  std::vector<std::string> phases;  ///< By `Step::phase`.
  // Of a plan that was chosen:
  std::uint64_t hash = 0;
  std::uint64_t bytes = 0;  ///< That it was chosen for.
  double predicted_us = 0;
  std::vector<std::string> dimensions = {};  ///< "4 members, ring, network".
  std::vector<int> dimension_of = {};        ///< Of each phase.
};

/// How a rank reaches the others of the job.
struct Ways {
  static constexpr int no_member = -1;
  /// By rank: its index in the memory that it shares with this rank; `no_member` if it shares none.
  std::vector<int> member;
  bool mpi_alone = false;  ///< Everything goes through MPI.
  /// At which steps are cut. The same on all ranks.
  topology::PieceSizes message_bytes = topology::message_bytes;
};

/// What an engine does at a time: one step of a program, or several that are one pass over memory.
struct Task {
  static constexpr std::uint32_t none = UINT32_MAX;
  enum class Kind : std::uint8_t {
    post,         ///< Makes the range known to a member of the host.
    pull,         ///< Copies a member's range into the range.
    pass,         ///< range = (range op a member's) op another member's ...
    net_send,     ///< Sends the range through the network.
    net_receive,  ///< Receives the range from there.
    net_reduce,   ///< range = range op what is received.
    reduce,       ///< range = range op the source range.
    copy,         ///< range = the source range.
    finish,       ///< Divides the range, if the operation does.
  };

  Kind kind = Kind::finish;
  std::uint8_t phase = 0;
  std::uint16_t chunk = 0;
  bool divides = false;          ///< A `pass` that is followed by `finish`.
  bool reads_input = false;      ///< The range has not been written to before.
  bool source_is_input = false;  ///< The same of the source range.
  std::int32_t peer = -1;        ///< Rank in the job; of a `pass` the first one.
  std::int32_t member = Ways::no_member;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t source = 0;
  std::uint32_t message = 0;                         ///< Index in the stream to or from the peer.
  std::uint32_t inputs_begin = 0, inputs_end = 0;    ///< In `PreparedProgram::inputs`.
  std::uint32_t answers_begin = 0, answers_end = 0;  ///< Of a `pass`, in `answers`.
  /// Of a `post`: the `pull` that its peer may do in its place, because it comes next for the range.
  std::uint32_t partner = none;
  std::uint32_t slot = 0;  ///< Of network tasks: a number of its own.

  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
};

/// A message from a member of the host.
struct Input {
  std::int32_t peer = -1;
  std::int32_t member = -1;
  std::uint32_t message = 0;
  std::uint32_t task = Task::none;    ///< Which takes it.
  std::uint32_t answer = Task::none;  ///< The `post` that sends the same range back, if there is one.
};

/// A program made ready to be run any number of times by an `Engine`. Immutable; any thread.
///
/// Steps that are longer than `Ways::message_bytes` are cut. A chain of reductions of members' ranges into
/// one range, with the `finish` after it, becomes one pass: each of the chain depends on the one before it
/// alone, so nothing waits for a part of it.
class PreparedProgram {
 public:
  /// For buffers of `count` elements of `element_bytes`. `ranks`: the rank in the job of each of the
  /// program's peers. `combined_in_order`: not empty for an all-reduce in which each rank sends all it has to
  /// each other one; the ranks in the job, in the order in which their operands are combined. Throws
  /// `internal` for a program that cannot be run: an address outside buffer and scratch memory, a range that
  /// is partly in either, a step without a peer.
  PreparedProgram(topology::Program program, std::size_t count, std::size_t element_bytes,
                  std::span<const int> ranks, const Ways& ways,
                  std::shared_ptr<const PlanNames> names = nullptr, std::vector<int> combined_in_order = {});

  /// No other program of the process ever has it.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t scratch() const noexcept { return scratch_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] bool mpi_alone() const noexcept { return mpi_alone_; }
  [[nodiscard]] const PlanNames* names() const noexcept { return names_.get(); }
  [[nodiscard]] const std::shared_ptr<const PlanNames>& shared_names() const noexcept { return names_; }
  [[nodiscard]] std::span<const int> combined_in_order() const noexcept { return combined_in_order_; }

  [[nodiscard]] std::span<const Task> tasks() const noexcept { return tasks_; }
  [[nodiscard]] std::span<const Input> inputs() const noexcept { return inputs_; }
  /// Of the passes: posts that can be done as part of them.
  [[nodiscard]] std::span<const std::uint32_t> answers() const noexcept { return answers_; }
  /// By task: tasks that must be complete before it, and messages that it takes.
  [[nodiscard]] std::span<const std::uint32_t> missing() const noexcept { return missing_; }
  [[nodiscard]] std::span<const std::uint32_t> after(std::uint32_t task) const noexcept {
    return std::span(after_).subspan(after_begin_[task], after_begin_[task + 1] - after_begin_[task]);
  }
  /// Tasks that nothing is missing of, as they are to be started.
  [[nodiscard]] std::span<const std::uint32_t> first() const noexcept { return first_; }
  /// In which order tasks are started that could be: the least first.
  [[nodiscard]] std::uint64_t urgency(std::uint32_t task) const noexcept { return urgency_[task]; }
  /// `net_reduce` tasks, in the program's order.
  [[nodiscard]] std::span<const std::uint32_t> net_reduces() const noexcept { return net_reduces_; }
  [[nodiscard]] std::uint32_t net_tasks() const noexcept { return net_tasks_; }
  /// Members of the host that it exchanges messages with.
  [[nodiscard]] std::span<const std::int32_t> members() const noexcept { return members_; }
  /// Index in `inputs` of a member's message; none if there is no such message.
  [[nodiscard]] std::uint32_t input_of(std::int32_t member, std::uint32_t message) const noexcept;
  /// The `post` of a message to a member; none if there is no such message.
  [[nodiscard]] std::uint32_t post_of(std::int32_t member, std::uint32_t message) const noexcept;

  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  /// Elements that the program does not write to.
  [[nodiscard]] std::span<const Range> unwritten() const noexcept { return unwritten_; }
  /// Whether some step reads a range of which parts were written before and parts were not.
  [[nodiscard]] bool reads_mixtures() const noexcept { return reads_mixtures_; }
  /// Whether all writes are inside of [begin, end); outside of it; or some is partly in either.
  enum class Writes { inside, outside, both, across };
  [[nodiscard]] Writes writes_of(std::size_t begin, std::size_t end) const;

 private:
  class Builder;
  struct Stream {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  std::uint64_t id_;
  std::size_t count_;
  std::size_t scratch_ = 0;
  int ranks_;
  bool mpi_alone_;
  std::shared_ptr<const PlanNames> names_;
  std::vector<int> combined_in_order_;
  std::vector<Task> tasks_;
  std::vector<Input> inputs_;
  std::vector<std::uint32_t> answers_;
  std::vector<std::uint32_t> missing_;
  std::vector<std::uint32_t> after_begin_;
  std::vector<std::uint32_t> after_;
  std::vector<std::uint32_t> first_;
  std::vector<std::uint64_t> urgency_;
  std::vector<std::uint32_t> net_reduces_;
  std::uint32_t net_tasks_ = 0;
  std::vector<std::int32_t> members_;
  std::vector<Stream> inputs_from_;  // by member, in inputs_by_message_
  std::vector<Stream> posts_to_;     // by member, in posts_by_message_
  std::vector<std::uint32_t> inputs_by_message_;
  std::vector<std::uint32_t> posts_by_message_;
  std::vector<Range> unwritten_;
  bool reads_mixtures_ = false;
};

}  // namespace ddl::collectives
