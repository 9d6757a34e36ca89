#pragma once

#include <cstdint>
#include <string>

#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// What a proof found.
struct Verdict {
  bool ok = false;
  std::string problem;              ///< Empty if ok: rank, step, what was found and expected.
  std::uint64_t steps = 0;          ///< Of all ranks.
  std::uint64_t elements_sent = 0;  ///< By all ranks.

  explicit operator bool() const noexcept { return ok; }
};

/// Proves, without running anything, that a schedule does what its collective promises, whatever the data,
/// the number format's rounding aside:
///
/// - completeness: at the end every element of every rank's buffer holds each rank's contribution exactly
///   once and was finished exactly once, after the last one came in (all_reduce; of the root's buffer in a
///   reduce, of each rank's own piece in a reduce_scatter); holds the root's (broadcast), or that of the rank
///   whose piece it is (all_gather, where only a rank's own piece holds anything at first); every rank has
///   heard of every other (barrier);
/// - matching: each send has its receive, of the same length, and no receive waits for nothing;
/// - no step reads memory that nothing has been written to, touches an address outside buffer and scratch, or
///   both of them with one range (they need not lie side by side);
/// - freedom from deadlock: with transports that buffer nothing, in whatever order the steps progress. A send
///   and its receive start together once each one's conflicts are over and its stream has come to it, a run
///   (see `Program`) with all that it takes; that relation must be without cycles. Buffers of any size then
///   only help (see `Program`);
/// - agreement: the order of operands in which each element is combined, and where the sum is rounded between
///   (at the end of a step or run), are the same on all ranks, so that all end with the same bits
///   (all_reduce).
///
/// Takes any value and never throws for what it holds: negative peers, ranges that wrap around, kinds that
/// are none. `phase`, `chunk` and what a kind does not use are not looked at.
///
/// n ranks, S steps of all ranks that move P pieces (a range holds one piece for each way in which its
/// elements came about): O((S + P) log S) time, some 40 bytes a step besides the schedule, and 24 for each
/// distinct sum of contributions. 1,024 ranks in a ring, 4 million steps: a second and 150 MB. Any thread.
Verdict verify(const Schedule& schedule);

}  // namespace ddl::topology
