#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddl::topology {

/// What a step does with its range of the rank's buffer. Collectives work in place, so a range of the
/// buffer is all that a step needs to name.
enum class StepKind : std::uint8_t {
  send,            ///< The range goes to `peer`.
  receive,         ///< The range is overwritten by what `peer` sends.
  receive_reduce,  ///< What `peer` sends is reduced into the range.
  finish,          ///< The range is fully reduced here: `avg` divides it, other operations do nothing.
};

/// One step of one rank, over elements [begin, end) of its buffer.
///
/// Rounds order a rank's steps: a round starts when the one before it is done on this rank. The steps
/// of a round progress concurrently, except that `finish` steps run first and that steps of the same
/// kind of direction with the same peer keep their order in the list. A send and its receive carry
/// the same round, therefore the ranks in the lowest unfinished round can always go on, however
/// little the transport buffers: a schedule with that property cannot deadlock.
struct Step {
  StepKind kind;
  int peer;  ///< The other rank; this rank itself for `finish`.
  std::uint32_t round;
  std::size_t begin;
  std::size_t end;

  friend bool operator==(const Step&, const Step&) = default;
};

/// One rank's steps, ascending in round.
using Steps = std::vector<Step>;

/// Every rank's steps: what is explained, verified, simulated and executed.
struct Schedule {
  std::vector<Steps> ranks;
};

std::string_view to_string(StepKind kind) noexcept;
/// E.g. "round 3: receive_reduce [0, 1024) from 5".
std::string to_string(const Step& step);

}  // namespace ddl::topology
