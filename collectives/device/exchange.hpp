#pragma once

#include <cstddef>
#include <cstdint>

#include "ddl/data_type.hpp"
#include "ddl/topology/schedule.hpp"

/// What ranks whose memory each other's kernels can reach use to exchange data without their hosts: in one
/// process plain pointers, between processes memory mapped by CUDA IPC.
///
/// Each rank launches one kernel a collective, all with the same number of blocks. Block b of a rank meets
/// block b of every other rank, twice: before the first byte is read, and after the last one has been
/// written. So all blocks of all ranks must be able to run at the same time, also where several ranks share a
/// device.
namespace ddl::collectives::device {

inline constexpr int most_ranks = 16;
inline constexpr int most_blocks = 64;
inline constexpr int pack_bytes = 16;  ///< What a thread reads and writes at a time.

/// What a rank calls: ranks that meet compare it.
struct CallCode {
  std::uint64_t count = 0;
  topology::Collective collective : 4 = {};
  DataType type : 4 = {};
  ReduceOp op = {};  ///< sum where there is none.
  std::uint16_t root = 0;
  std::uint32_t cut = 0;  ///< Stands for the elements of this part: ranks must cut a call alike.
  friend bool operator==(const CallCode&, const CallCode&) = default;
};

/// Where something is, in words that all ranks understand: a pointer, between threads of a process; or the
/// number, from 1 on, of a window and an offset in it. A window is memory of each rank's that all have
/// mapped, each elsewhere.
using Address = std::uint64_t;
inline constexpr int window_shift = 48;  ///< Pointers and offsets are below 2^48.

/// Data of a rank: pieces of all ranks, `stride` bytes apart, where a collective has such.
struct Place {
  Address address = 0;
  std::uint64_t stride = 0;
};

/// What a block of a rank tells the same block of another one.
struct alignas(64) Slot {
  Place input;
  Place output;
  CallCode call;
  std::uint64_t arrived = 0;  ///< The last round in which all above is valid and the input can be read.
  std::uint64_t done = 0;     ///< The last round in which all has been read and written.
};
static_assert(sizeof(Slot) == 64);

/// In the memory of each rank, for the others to write to.
struct Mailbox {
  Slot slots[most_blocks][most_ranks];
  /// For this rank alone: how many exchanges each of its blocks has taken part in, which is the same on all
  /// ranks. Counted by the device, so that a captured exchange is a new one each time it is replayed.
  std::uint64_t rounds[most_blocks];
};

/// In memory of the host that its device can reach.
struct Status {
  std::uint32_t abort = 0;               ///< Set by the host: who waits, stops.
  std::uint64_t finished = 0;            ///< The last call that is over, as `Exchange::part_of`.
  CallCode own = {};                     ///< What this rank called when something below was found.
  std::uint64_t late[most_ranks] = {};   ///< By rank: 1 + the call for which it was waited in vain; 0: none.
  std::uint64_t other[most_ranks] = {};  ///< 1 + the call in which it called something else: `calls`.
  CallCode calls[most_ranks] = {};
};

/// A rank's part of one collective. For each element e of its range, in the order of ranks:
/// target[e] = op over `sources` of source[e], for all of `targets`.
struct Exchange {
  Mailbox* mailboxes[most_ranks] = {};  ///< Of each rank, as this one reaches them.
  Status* status = nullptr;
  int rank = 0;
  int ranks = 1;
  std::uint64_t part_of = 0;     ///< The rank's call that it is a part of, from 1 on; 0: it is captured.
  bool is_last = true;           ///< Of the call's parts.
  std::uint64_t timeout_ns = 0;  ///< How long a block waits for one of its peers.
  CallCode call;
  Place input;
  Place output;
  std::byte* const* windows = nullptr;  ///< [window - 1][rank]: where it begins, as this rank sees it.
  std::uint32_t sources = 0;            ///< A bit for each rank whose input is read.
  std::uint32_t targets = 0;            ///< A bit for each rank whose output is written.
  int source_piece = 0;                 ///< Of inputs, as `target_piece` of outputs: in which the range is.
  int target_piece = 0;
  std::uint64_t offset = 0;    ///< In bytes: where the range begins in its pieces.
  std::uint64_t elements = 0;  ///< Of the range.
  int divisor = 1;
};

}  // namespace ddl::collectives::device
