#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddl/topology/plan.hpp"
#include "ddl/topology/program.hpp"
#include "topology/program/passes.hpp"

namespace ddl::collectives {

/// A plan and what is derived from it once, for messages and records. Programs that come from no plan have
/// only a text.
struct ChosenPlan {
  std::string text;                          ///< One line.
  std::vector<std::string> phases = {};      ///< By `Step::phase`, for example "all_gather in dimension 1".
  std::vector<int> dimension_of = {};        ///< By phase.
  std::vector<std::string> dimensions = {};  ///< "4 members, ring, network"; empty without a plan.
  std::uint64_t hash = 0;
  topology::Plan plan = {};
};

/// How a rank reaches the other ranks of the job.
struct Ways {
  static constexpr int no_member = -1;
  /// By rank: its index in the memory that it shares with this rank, or `no_member`.
  std::vector<int> member;
  bool mpi_alone = false;  ///< All messages go through MPI.
  /// The longest messages, if the collective has no shorter ones. Equal on all ranks.
  topology::MessageSizes message_bytes = topology::message_bytes;

  [[nodiscard]] bool shares_with(int rank) const noexcept {
    return !mpi_alone && member[as_index(rank)] != no_member;
  }
};

/// How this rank does a step of its program.
struct StepWay {
  static constexpr std::uint32_t none = UINT32_MAX;

  std::int32_t peer = -1;                 ///< Its rank in the job.
  std::int32_t member = Ways::no_member;  ///< The peer's index in the host's memory; none: by network.
  std::uint32_t message = 0;              ///< Index in the sequence of messages to or from the peer.
  std::uint32_t end = 0;                  ///< One past the last step of the run that this step begins.
  /// Index among the receives from members, the sends to members, or the network transfers.
  std::uint32_t slot = 0;
  /// For a receive_reduce from a member: the send that returns the result to that member, if any. For a send
  /// to a member: the receive that the peer may do in its place by writing the result, because it is the next
  /// access to the range.
  std::uint32_t answer = none;
  /// For a send to a member: index of the copy for members, where the range is not in shared memory. Sends of
  /// the same elements have the same one.
  std::uint32_t copy = 0;
  /// For a run's first step: the copy of its result, if nothing else waits for the run.
  std::uint32_t copied_by = none;
  bool follows_run = false;      ///< A send that waits only for the run that it answers, which can do it.
  bool reads_input = false;      ///< The range has not been written before.
  bool source_is_input = false;  ///< The same for the source range.

  [[nodiscard]] bool by_network() const noexcept { return peer >= 0 && member == Ways::no_member; }
};

/// A program in the form in which an `Engine` runs it, any number of times: how each step is done, what each
/// run waits for, and in which order runs start. A run is a step and the steps joined to it, and is
/// identified by its first step. Immutable.
class PreparedProgram {
 public:
  /// Cuts and fuses a program for buffers of `count` elements of `element_bytes`. `ranks`: the rank in the
  /// job of each of the program's peers. Throws `internal` for a program that cannot be run: an address
  /// outside of buffer and scratch memory, a range that spans both, or a step without a peer.
  PreparedProgram(topology::Program program, std::size_t count, std::size_t element_bytes,
                  std::span<const int> ranks, const Ways& ways,
                  std::shared_ptr<const ChosenPlan> plan = nullptr);

  /// The program after cutting and fusing.
  [[nodiscard]] const topology::Program& program() const noexcept { return program_; }
  [[nodiscard]] std::span<const topology::Step> steps() const noexcept { return program_.steps; }
  [[nodiscard]] const topology::Step& step(std::uint32_t index) const noexcept {
    return program_.steps[index];
  }
  [[nodiscard]] const StepWay& way(std::uint32_t index) const noexcept { return ways_[index]; }
  [[nodiscard]] std::uint32_t begin_of_run(std::uint32_t step) const noexcept {
    return static_cast<std::uint32_t>(program_.begin_of_run(step));
  }
  [[nodiscard]] std::uint32_t end_of_run(std::uint32_t step) const noexcept { return ways_[step].end; }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t scratch() const noexcept { return program_.scratch; }
  [[nodiscard]] bool rounds() const noexcept { return rounds_; }
  [[nodiscard]] bool reduces() const noexcept { return reduces_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] bool mpi_alone() const noexcept { return mpi_alone_; }
  /// May be null.
  [[nodiscard]] const std::shared_ptr<const ChosenPlan>& plan() const noexcept { return plan_; }

  [[nodiscard]] std::size_t runs() const noexcept { return runs_; }
  /// By a run's first step: how many runs and messages it waits for.
  [[nodiscard]] std::span<const std::uint32_t> missing() const noexcept { return missing_; }
  /// The runs that wait for `run`.
  [[nodiscard]] std::span<const std::uint32_t> after(std::uint32_t run) const noexcept {
    return std::span(after_).subspan(after_begin_[run], after_begin_[run + 1] - after_begin_[run]);
  }
  /// The runs that wait for nothing, most urgent first.
  [[nodiscard]] std::span<const std::uint32_t> first() const noexcept { return first_; }
  /// Among runs that can start, the one with the lowest value starts first.
  [[nodiscard]] std::uint64_t urgency(std::uint32_t run) const noexcept { return urgency_[run]; }
  /// Receives through the network that are reduced, in program order.
  [[nodiscard]] std::span<const std::uint32_t> net_reduces() const noexcept { return net_reduces_; }

  // The number of slots of each kind.
  [[nodiscard]] std::uint32_t transfers() const noexcept { return transfers_; }  ///< By network.
  [[nodiscard]] std::uint32_t arrivals() const noexcept { return arrivals_; }    ///< From members.
  [[nodiscard]] std::uint32_t posts() const noexcept { return posts_; }          ///< To members.

  /// By `StepWay::copy`: how many sends share the copy.
  [[nodiscard]] std::span<const std::uint32_t> copies() const noexcept { return copies_; }
  /// Whether a send has an `answer`.
  [[nodiscard]] bool lends() const noexcept { return lends_; }

  /// The members that it exchanges messages with.
  [[nodiscard]] std::span<const std::int32_t> members() const noexcept { return members_; }
  /// The step that receives a message from a member, or sends one to it; none if there is no such message.
  [[nodiscard]] std::uint32_t receive_of(std::int32_t member, std::uint32_t message) const noexcept {
    return receives_.of(member, message);
  }
  [[nodiscard]] std::uint32_t send_of(std::int32_t member, std::uint32_t message) const noexcept {
    return sends_.of(member, message);
  }

  /// How many elements come from each peer, by its rank in the job.
  [[nodiscard]] const std::map<std::int32_t, std::uint64_t>& elements_from() const noexcept {
    return elements_from_;
  }
  /// In elements.
  [[nodiscard]] std::size_t longest_message() const noexcept { return longest_message_; }
  [[nodiscard]] bool has_one_phase() const noexcept { return has_one_phase_; }

  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  /// Ranges that the program does not write.
  [[nodiscard]] std::span<const Range> unwritten() const noexcept { return unwritten_; }
  /// Whether a step reads a range that was written only partly.
  [[nodiscard]] bool reads_mixtures() const noexcept { return reads_mixtures_; }
  /// Where the writes are: all inside of [begin, end), all outside of it, some of each, or one that crosses
  /// its boundary.
  enum class Writes { inside, outside, both, across };
  [[nodiscard]] Writes writes_of(std::size_t begin, std::size_t end) const;

 private:
  class Builder;
  /// Steps by member and message number.
  struct Messages {
    std::vector<std::vector<std::uint32_t>> steps;

    void add(std::int32_t member, std::uint32_t step);
    [[nodiscard]] std::uint32_t of(std::int32_t member, std::uint32_t message) const noexcept {
      const auto m = as_index(member);
      return m < steps.size() && message < steps[m].size() ? steps[m][message] : StepWay::none;
    }
  };

  topology::Program program_;
  std::size_t count_;
  int ranks_;
  bool mpi_alone_;
  std::shared_ptr<const ChosenPlan> plan_;
  std::vector<StepWay> ways_;
  std::size_t runs_ = 0;
  std::vector<std::uint32_t> missing_;
  std::vector<std::uint32_t> after_begin_;
  std::vector<std::uint32_t> after_;
  std::vector<std::uint32_t> first_;
  std::vector<std::uint64_t> urgency_;
  std::vector<std::uint32_t> net_reduces_;
  std::uint32_t transfers_ = 0;
  std::uint32_t arrivals_ = 0;
  std::uint32_t posts_ = 0;
  std::vector<std::uint32_t> copies_;
  bool lends_ = false;
  std::vector<std::int32_t> members_;
  Messages receives_;
  Messages sends_;
  std::map<std::int32_t, std::uint64_t> elements_from_;
  std::size_t longest_message_ = 0;
  bool has_one_phase_ = true;
  bool rounds_ = false;
  bool reduces_ = false;
  std::vector<Range> unwritten_;
  bool reads_mixtures_ = false;
};

}  // namespace ddl::collectives
