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

/// `count` elements of each rank's buffer. all_gather: n pieces of count / n, of which a rank starts with the
/// one with its number; reduce_scatter: it ends with that one, reduced; reduce: the root ends with all.
enum class Collective : std::uint8_t { all_reduce, broadcast, barrier, reduce_scatter, all_gather, reduce };

/// What a step does. A rank's addresses are elements: [0, count) is its buffer, [count, count + scratch)
/// is scratch memory; a range lies in one of the two.
enum class StepKind : std::uint8_t {
  send,            ///< The range goes to `peer`.
  receive,         ///< The range is overwritten by what `peer` sends.
  receive_reduce,  ///< range = range op what `peer` sends.
  reduce,          ///< range = range op the source range of this rank.
  copy,            ///< range = the source range of this rank.
  finish,          ///< The range is fully reduced: `avg` divides it by n, other operations do nothing.
  round,           ///< range = the nearest values of `Program::wire`.
};

/// Whether it reads `source`.
constexpr bool has_source(StepKind kind) noexcept {
  return kind == StepKind::reduce || kind == StepKind::copy;
}
constexpr bool is_local(StepKind kind) noexcept { return kind >= StepKind::reduce; }
constexpr bool is_receive(StepKind kind) noexcept {
  return kind == StepKind::receive || kind == StepKind::receive_reduce;
}

/// One step of one rank, over elements [begin, end) of its addresses. Never empty.
struct Step {
  StepKind kind = StepKind::finish;
  std::uint8_t phase = 0;   ///< Index into `phases_of(plan)`; for reports alone.
  std::uint8_t chunk = 0;   ///< For reports alone.
  bool joined : 1 = false;  ///< Part of the run of the step before it: see `Program`.
  /// The message is in `Program::wire`, which holds its values: they have been rounded.
  bool narrow : 1 = false;
  std::int32_t peer = -1;  ///< The other rank; -1 for local steps.
  std::size_t begin = 0;
  std::size_t end = 0;
  /// `reduce` and `copy` read [source, source + (end - begin)). `round`: where its residual is; see
  /// `Program`.
  std::size_t source = 0;

  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  /// The same step of `length` elements of its range, from the one at `offset` on.
  [[nodiscard]] Step part(std::size_t offset, std::size_t length) const noexcept;
  friend bool operator==(const Step&, const Step&) = default;
};

/// One rank's part of a schedule.
///
/// The order of the list gives the meaning, not the time: a rank's memory ends up as if its steps had run
/// one after the other. A step may start as soon as all earlier ones that it conflicts with are complete
/// (their ranges overlap and one of the two writes: `Dependencies`), and steps that don't conflict run
/// together. Sends to a peer form a stream in list order, as do the receives from a peer: the k-th send of
/// a to b is what the k-th receive of b from a gets, and has its length.
///
/// Nothing is assumed of the transport's buffers: a send may have to wait until its receive has started.
/// More buffering only lets steps complete earlier, so what cannot deadlock without any cannot deadlock.
///
/// A step and the joined steps that follow it are a run: one pass over memory, which reads what several peers
/// have in theirs. A joined step is a receive_reduce, reduce or finish of the range of the step before it,
/// and a run takes from a peer once. A run starts when all of it may, with all of its peers' sends, which are
/// over when the run is. Its result is rounded once, so runs are part of what makes ranks' bits equal.
struct Program {
  std::vector<Step> steps;
  std::size_t scratch = 0;        ///< Elements.
  DataType wire = DataType::f32;  ///< Of narrow messages.
  /// Elements that are rounded. What a rounding leaves can be made good by the next call, which adds it to
  /// what it rounds there (error feedback): each `round` has a range of its own in [0, residual) for that.
  std::size_t residual = 0;

  /// Where the run that `step` begins ends: the next step that is not joined.
  [[nodiscard]] std::size_t end_of_run(std::size_t step) const noexcept {
    do {
      ++step;
    } while (step < steps.size() && steps[step].joined);
    return step;
  }
  /// Where the run that `step` is in begins.
  [[nodiscard]] std::size_t begin_of_run(std::size_t step) const noexcept {
    while (step > 0 && steps[step].joined) --step;
    return step;
  }
  friend bool operator==(const Program&, const Program&) = default;
};

/// Which steps of a program must be complete before each may start: the earlier ones that touch the same
/// memory, one of the two writing. Only the last of a chain is listed: a step depends on what its
/// predecessors depend on. The order of a stream (see `Program`) is not in here.
///
/// Any program is taken; ranges that are empty or wrap around touch nothing.
/// O(S log S) for S steps whose ranges nest or tile, as those of lowerings do. Immutable; any thread.
class Dependencies {
 public:
  explicit Dependencies(const Program& program);

  [[nodiscard]] std::size_t steps() const noexcept { return before_.size(); }
  /// How many steps `after` lists this one for.
  [[nodiscard]] std::uint32_t number_before(std::size_t step) const { return before_[step]; }
  /// The later steps that wait for this one, ascending.
  [[nodiscard]] std::span<const std::uint32_t> after(std::size_t step) const {
    return std::span(after_).subspan(begin_[step], begin_[step + 1] - begin_[step]);
  }
  friend bool operator==(const Dependencies&, const Dependencies&) = default;

 private:
  std::vector<std::uint32_t> before_;
  std::vector<std::uint32_t> begin_;  // steps + 1 positions in after_
  std::vector<std::uint32_t> after_;
};

/// Every rank's program: what is explained, verified, simulated and executed.
struct Schedule {
  Collective collective = Collective::all_reduce;
  int root = 0;           ///< Of a broadcast or reduce.
  std::size_t count = 0;  ///< Elements of each rank's buffer.
  std::vector<Program> ranks;
};

std::string_view to_string(Collective collective) noexcept;
std::string_view to_string(StepKind kind) noexcept;
/// E.g. "receive_reduce [0, 1024) from 5", ", joined" if it is.
std::string to_string(const Step& step);

}  // namespace ddl::topology
