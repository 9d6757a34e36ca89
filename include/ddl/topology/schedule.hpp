#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
};

constexpr bool is_local(StepKind kind) noexcept { return kind >= StepKind::reduce; }
constexpr bool is_receive(StepKind kind) noexcept {
  return kind == StepKind::receive || kind == StepKind::receive_reduce;
}

/// One step of one rank, over elements [begin, end) of its addresses. Never empty.
struct Step {
  StepKind kind = StepKind::finish;
  std::uint8_t phase = 0;   ///< Index into `phases_of(plan)`; for reports alone.
  std::uint16_t chunk = 0;  ///< For reports alone.
  std::int32_t peer = -1;   ///< The other rank; -1 for local steps.
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t source = 0;  ///< `reduce` and `copy` read [source, source + (end - begin)).

  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
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
struct Program {
  std::vector<Step> steps;
  std::size_t scratch = 0;  ///< Elements.

  friend bool operator==(const Program&, const Program&) = default;
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
/// E.g. "receive_reduce [0, 1024) from 5".
std::string to_string(const Step& step);

}  // namespace ddl::topology
