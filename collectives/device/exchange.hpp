#pragma once

#include <cstddef>
#include <cstdint>

#include "ddl/data_type.hpp"
#include "ddl/topology/schedule.hpp"

/// How ranks exchange data without their hosts if each one's kernels can access the others' memory: by plain
/// pointers within a process, and by CUDA IPC mappings between processes.
///
/// Each rank launches one kernel per collective, all with the same number of blocks. Block b of a rank meets
/// block b of every other rank twice: before the first byte is read, and after the last one has been written.
/// So all blocks of all ranks must be able to run at the same time, even if several ranks share a device.
namespace ddl::collectives::device {

inline constexpr int most_ranks = 16;
inline constexpr int most_blocks = 64;
inline constexpr int pack_bytes = 16;  ///< Bytes that a thread reads or writes at a time.

/// A rank's call, which ranks compare when they meet.
struct CallCode {
  std::uint64_t count = 0;
  topology::Collective collective : 4 = {};
  DataType type : 4 = {};
  ReduceOp op = {};  ///< `sum` for collectives without an operation.
  std::uint16_t root = 0;
  std::uint32_t cut = 0;  ///< Identifies this part's elements, because all ranks must cut a call alike.
  friend bool operator==(const CallCode&, const CallCode&) = default;
};

/// An address that all ranks understand: between threads of a process a pointer; otherwise the number of a
/// window, from 1, and an offset in it. A window is memory of each rank that all ranks have mapped, at
/// different addresses.
using Address = std::uint64_t;
inline constexpr int window_shift = 48;  ///< Pointers and offsets are below 2^48.

/// A rank's data. In collectives on pieces, the pieces of all ranks are `stride` bytes apart.
struct Place {
  Address address = 0;
  std::uint64_t stride = 0;
};

/// What a block of a rank tells the same block of another rank.
struct alignas(64) Slot {
  Place input;
  Place output;
  CallCode call;
  std::uint64_t arrived = 0;  ///< The last round in which all above is valid and the input readable.
  std::uint64_t done = 0;     ///< The last round in which the block has read and written everything.
};
static_assert(sizeof(Slot) == 64);

/// In each rank's memory; the other ranks write to it.
struct Mailbox {
  Slot slots[most_blocks][most_ranks];
  /// Only for this rank: how many exchanges each of its blocks has taken part in, which is the same on all
  /// ranks. The device counts, so that each replay of a captured exchange is a new one.
  std::uint64_t rounds[most_blocks];
};

/// In host memory that the device can access.
struct Status {
  std::uint32_t abort = 0;               ///< Set by the host to stop waiting blocks.
  std::uint64_t finished = 0;            ///< The last complete call, like `Exchange::part_of`.
  CallCode own = {};                     ///< This rank's call when it found one of the following.
  std::uint64_t late[most_ranks] = {};   ///< By rank: 1 + the call in which a wait for it timed out; 0: none.
  std::uint64_t other[most_ranks] = {};  ///< 1 + the call in which it called something else: `calls`.
  CallCode calls[most_ranks] = {};
};

/// A rank's part of a collective. For each element e of its range, in rank order: target[e] = op over
/// `sources` of source[e], for all of `targets`.
struct Exchange {
  Mailbox* mailboxes[most_ranks] = {};  ///< Of each rank, as mapped by this rank.
  Status* status = nullptr;
  int rank = 0;
  int ranks = 1;
  std::uint64_t part_of = 0;     ///< The rank's call that it is a part of, from 1; 0 if captured.
  bool is_last = true;           ///< Whether it is the call's last part.
  std::uint64_t timeout_ns = 0;  ///< How long a block waits for a peer.
  CallCode call;
  Place input;
  Place output;
  std::byte* const* windows = nullptr;  ///< [window - 1][rank]: its start, as mapped by this rank.
  std::uint32_t sources = 0;            ///< A bit for each rank whose input is read.
  std::uint32_t targets = 0;            ///< A bit for each rank whose output is written.
  int source_piece = 0;  ///< The piece of inputs that holds the range; `target_piece`: of outputs.
  int target_piece = 0;
  std::uint64_t offset = 0;    ///< Start of the range in its pieces, in bytes.
  std::uint64_t elements = 0;  ///< Length of the range.
  int divisor = 1;
};

/// Sets `exchange.rank`'s part of a collective: sources, targets, offsets and elements. `count` is the
/// call's: see `ddl::Communicator`. Ranges are cut at multiples of 128 bytes, so that aligned data is read
/// and written in packs.
void set_range(Exchange& exchange, topology::Collective collective, std::size_t count,
               std::size_t element_bytes, int root);

/// The same for `exchange_all`, where every rank reduces everything for itself.
void set_whole(Exchange& exchange, std::size_t count);

}  // namespace ddl::collectives::device
