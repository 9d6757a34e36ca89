#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/data_type.hpp"
#include "ddl/topology/as_index.hpp"

namespace ddl::topology {

/// The collectives. Each works on a buffer of `count` elements per rank; with all_gather and reduce_scatter
/// it consists of n pieces of count / n elements.
enum class Collective : std::uint8_t {
  all_reduce,      ///< Each rank ends with the whole buffer reduced.
  broadcast,       ///< Each rank ends with the root's buffer.
  barrier,         ///< No data: no rank ends before all have begun.
  reduce_scatter,  ///< Each rank ends with the piece of its number reduced.
  all_gather,      ///< Each rank begins with the piece of its number and ends with all.
  reduce,          ///< The root ends with the whole buffer reduced.
};

/// What a step does. Addresses of a rank count elements: [0, count) is its buffer, [count, count + scratch)
/// is scratch memory; a range lies in one of the two.
enum class StepKind : std::uint8_t {
  send,            ///< Sends the range to `peer`.
  receive,         ///< Overwrites the range with `peer`'s message.
  receive_reduce,  ///< range = range op `peer`'s message.
  reduce,          ///< range = range op the source range of this rank.
  copy,            ///< range = the source range of this rank.
  finish,          ///< The range is fully reduced: `avg` divides it by n, other operations do nothing.
  round,           ///< range = range, rounded to the nearest values of `Program::wire`.
};

/// Whether a step of this kind reads `Step::source`.
constexpr bool has_source(StepKind kind) noexcept {
  return kind == StepKind::reduce || kind == StepKind::copy;
}
/// Whether it needs no peer.
constexpr bool is_local(StepKind kind) noexcept { return kind >= StepKind::reduce; }
/// Whether it takes a message from a peer.
constexpr bool is_receive(StepKind kind) noexcept {
  return kind == StepKind::receive || kind == StepKind::receive_reduce;
}

/// One step of one rank, over elements [begin, end) of its addresses. The range is never empty.
struct Step {
  StepKind kind = StepKind::finish;  ///< What it does.
  std::uint8_t phase = 0;            ///< Index into `phases_of(plan)`; for reports only.
  std::uint8_t chunk = 0;            ///< Number of the plan's chunk; for reports only.
  bool joined : 1 = false;           ///< Belongs to the run of the step before it: see `Program`.
  /// The message travels as `Program::wire`. Its values have been rounded to that type, so nothing is lost.
  bool narrow : 1 = false;
  std::int32_t peer = -1;  ///< The other rank; -1 for local steps.
  std::size_t begin = 0;   ///< First element of the range.
  std::size_t end = 0;     ///< One past its last element.
  /// First element of the source range of `reduce` and `copy`, which is as long as the range. For `round`,
  /// the first element of its residual: see `Program`.
  std::size_t source = 0;

  /// Number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  /// The same step for `length` elements of its range, starting at its element `offset`.
  [[nodiscard]] Step part(std::size_t offset, std::size_t length) const noexcept;
  /// Memberwise equality.
  friend bool operator==(const Step&, const Step&) = default;
};

/// One rank's part of a schedule.
///
/// The order of the list defines the result, not the time: a rank's memory ends up as if its steps had run
/// one after the other. A step may start as soon as all earlier steps that it conflicts with are complete
/// (their ranges overlap and one of the two writes: `Dependencies`); steps that do not conflict run
/// concurrently. The sends to a peer form a stream in list order, as do the receives from a peer: the k-th
/// receive of b from a takes the k-th send of a to b, and both have the same length.
///
/// No buffering in the transport is assumed: a send may have to wait until its receive has started. Buffering
/// only lets steps complete earlier, so a schedule that cannot deadlock without it cannot deadlock with it.
///
/// A step and the joined steps that follow it form a run: one pass over memory that reads the memory of
/// several peers. A joined step is a receive_reduce, reduce or finish of the same range as the step before
/// it, and a run takes from each peer once. A run starts when all of its steps may start and all of its
/// peers' sends too, and these complete when the run does. Its result is rounded once, so the division into
/// runs affects the bits of the result.
struct Program {
  std::vector<Step> steps;        ///< In list order.
  std::size_t scratch = 0;        ///< Size of the scratch memory in elements.
  DataType wire = DataType::f32;  ///< Type of narrow messages.
  /// Number of elements that are rounded. With error feedback the next call adds a rounding's errors to the
  /// values that it rounds there: each `round` has a range of its own in [0, residual) for the errors.
  std::size_t residual = 0;

  /// One past the last step of the run that `step` begins.
  [[nodiscard]] std::size_t end_of_run(std::size_t step) const noexcept {
    do {
      ++step;
    } while (step < steps.size() && steps[step].joined);
    return step;
  }
  /// The first step of the run that contains `step`.
  [[nodiscard]] std::size_t begin_of_run(std::size_t step) const noexcept {
    while (step > 0 && steps[step].joined) --step;
    return step;
  }
  /// Memberwise equality.
  friend bool operator==(const Program&, const Program&) = default;
};

/// For each step of a program, which steps must be complete before it may start: earlier ones that access the
/// same memory, where one of the two writes. Transitive dependencies are left out if a chain of listed ones
/// implies them. The order of streams (see `Program`) is not included. Immutable; any thread.
class Dependencies {
 public:
  /// Takes any program; ranges that are empty or wrap around access nothing. O(S log S) for S steps whose
  /// ranges nest or tile, as those of lowered plans do.
  explicit Dependencies(const Program& program);

  /// Number of steps.
  [[nodiscard]] std::size_t steps() const noexcept { return before_.size(); }
  /// Number of steps that this step waits for directly: in how many steps' `after` it is listed.
  [[nodiscard]] std::uint32_t number_before(std::size_t step) const { return before_[step]; }
  /// The later steps that wait directly for this one, ascending.
  [[nodiscard]] std::span<const std::uint32_t> after(std::size_t step) const {
    return std::span(after_).subspan(begin_[step], begin_[step + 1] - begin_[step]);
  }
  /// Memberwise equality.
  friend bool operator==(const Dependencies&, const Dependencies&) = default;

 private:
  std::vector<std::uint32_t> before_;
  std::vector<std::uint32_t> begin_;  // steps + 1 positions in after_
  std::vector<std::uint32_t> after_;
};

/// The programs of all ranks: the value that is verified, simulated and executed.
struct Schedule {
  Collective collective = Collective::all_reduce;  ///< What the programs do together.
  int root = 0;                                    ///< Of a broadcast or reduce.
  std::size_t count = 0;                           ///< Elements of each rank's buffer.
  std::vector<Program> ranks;                      ///< By rank.
};

/// "all_reduce", "broadcast", ...
std::string_view to_string(Collective collective) noexcept;
/// "send", "receive", ...
std::string_view to_string(StepKind kind) noexcept;
/// A step for people, e.g. "receive_reduce [0, 1024) from 5, joined".
std::string to_string(const Step& step);

}  // namespace ddl::topology
