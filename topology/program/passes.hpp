#pragma once

#include <cstddef>
#include <functional>

#include "ddl/topology/plan.hpp"
#include "ddl/topology/program.hpp"

namespace ddl::topology {

/// The largest size of a message, in elements or bytes.
struct MessageSizes {
  std::size_t inside_host;    ///< Between ranks that share memory.
  std::size_t between_hosts;  ///< Between other ranks.

  /// Bytes converted to elements of `element_bytes` bytes.
  [[nodiscard]] constexpr MessageSizes of(std::size_t element_bytes) const noexcept {
    return {inside_host / element_bytes, between_hosts / element_bytes};
  }
};

/// The engine's largest messages, in bytes. Inside a host, a piece stays in a core's cache, and few
/// notifications are needed. Between hosts, many small messages are in flight at a time: on TCP, a few large
/// ones leave links idle whenever one of them waits for its window or its rank (measured on 4x4 ranks over 1
/// Gb/s: 0.70 to 0.82 of the rate with 256 KiB, 0.87 to 1.0 with 32 KiB).
constexpr MessageSizes message_bytes = {std::size_t{256} << 10, std::size_t{32} << 10};
/// Those of a collective of `bytes`. Ranks read a broadcast's first message while the root copies the next
/// one, so that more messages gain more than they cost where there are few: 256 KiB took 15 us in one message
/// and 12 in two, but 16 MiB a tenth longer.
constexpr MessageSizes message_bytes_of(Collective collective, std::size_t bytes) noexcept {
  constexpr std::size_t most_in_short_ones = std::size_t{4} << 20;
  if (collective != Collective::broadcast || bytes > most_in_short_ones) return message_bytes;
  return {message_bytes.inside_host / 2, message_bytes.between_hosts};
}

/// Whether `peer`, a rank of the schedule, shares memory with the program's rank.
using SharesMemory = std::function<bool(int peer)>;

/// Cuts every step of more than `most` elements into as few pieces as necessary, whose sizes differ by at
/// most one. Both ends of a message are cut alike, so the programs of all ranks must be cut with the same
/// `most`, and before they are fused. Consecutive steps of one range that are cut alike are listed piece by
/// piece (the first pieces of all of them, then the second ones), so that a piece is passed on while the next
/// one arrives; local steps are cut like the steps before them. Messages through shared memory become wide
/// (`Step::narrow`). A valid schedule stays valid. O(resulting steps). Throws `invalid_argument` for a size
/// of 0.
Program cut(Program program, const MessageSizes& most, const SharesMemory& shares);

/// Joins consecutive reductions of one range from peers that share memory, and the finish that follows them,
/// into runs (see `Program`). Leaves phases with a peer that does not share memory unchanged, so that all
/// members of a group round at the same places; the groups of a dimension must therefore all share memory, or
/// none. Keeps the order of each stream. O(S log S) for S steps.
Program fuse(Program program, const SharesMemory& shares);

/// Whether MPI carries all of a plan's messages; then no rank reads another rank's memory.
bool is_by_mpi_alone(const Plan& plan);

}  // namespace ddl::topology
