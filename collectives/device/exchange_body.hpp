#pragma once

#include <cstdint>

#include "collectives/device/exchange.hpp"
#include "collectives/kernels/element.hpp"

/// The code of a thread of an exchange. `Block` gives its place and its means to wait: `index()`, `blocks()`,
/// `thread()`, `threads()`, `sync()`, `now_ns()`, `pause()`; and to communicate with other devices: `load`
/// acquires what was written before the `store` of the value that it reads; and with the host: `tell`, which
/// orders nothing. `round` is the number of this exchange among those of the block, from 1.
namespace ddl::collectives::device {

/// Shared by the threads of a block. Indexed by rank.
struct Meeting {
  const std::byte* sources[most_ranks];  ///< start of this rank's range in its input
  std::byte* targets[most_ranks];        ///< the same in its output
  bool in_packs[most_ranks];             ///< whether both are aligned for packs
  bool met[most_ranks];                  ///< whether it has arrived
};

struct alignas(pack_bytes) Raw {
  std::uint32_t words[4];
};

template <typename T>
inline constexpr int per_pack = pack_bytes / static_cast<int>(sizeof(T));

template <typename T>
DDL_HOST_DEVICE void load_pack(const std::byte* from, T* values) {
  const Raw raw = *reinterpret_cast<const Raw*>(from);
  __builtin_memcpy(values, &raw, sizeof raw);
}

template <typename T>
DDL_HOST_DEVICE void store_pack(std::byte* to, const T* values) {
  Raw raw;
  __builtin_memcpy(&raw, values, sizeof raw);
  *reinterpret_cast<Raw*>(to) = raw;
}

template <typename Block>
DDL_HOST_DEVICE bool wait_for(Block& block, const Exchange& e, const std::uint64_t& flag,
                              std::uint64_t round) {
  const auto is_there = [&] { return block.load(flag) >= round; };
  if (is_there()) return true;
  const std::uint64_t begin = block.now_ns();
  for (std::uint32_t looks = 1;; ++looks) {
    if (is_there()) return true;
    if (looks % 256 != 0) continue;
    if (block.load(e.status->abort) != 0 || block.now_ns() - begin > e.timeout_ns) return false;
    block.pause();
  }
}

DDL_HOST_DEVICE std::byte* pointer_to(const Exchange& e, const Place& place, int rank, int piece) {
  const Address window = place.address >> window_shift;
  const std::uint64_t rest = place.address & ((Address{1} << window_shift) - 1);
  std::byte* const begin =
      window == 0
          ? reinterpret_cast<std::byte*>(rest)
          : e.windows[(window - 1) * static_cast<Address>(e.ranks) + static_cast<Address>(rank)] + rest;
  return begin + static_cast<std::uint64_t>(piece) * place.stride + e.offset;
}

DDL_HOST_DEVICE bool is_among(std::uint32_t ranks, int rank) { return (ranks >> rank & 1U) != 0; }

/// Only ranks that are read or written have places.
DDL_HOST_DEVICE void set_places(const Exchange& e, Meeting& meeting, int rank, const Place& input,
                                const Place& output) {
  std::uintptr_t places = 0;
  if (is_among(e.sources, rank)) {
    meeting.sources[rank] = pointer_to(e, input, rank, e.source_piece);
    places |= reinterpret_cast<std::uintptr_t>(meeting.sources[rank]);
  }
  if (is_among(e.targets, rank)) {
    meeting.targets[rank] = pointer_to(e, output, rank, e.target_piece);
    places |= reinterpret_cast<std::uintptr_t>(meeting.targets[rank]);
  }
  meeting.in_packs[rank] = places % pack_bytes == 0;
}

template <typename Block>
DDL_HOST_DEVICE void tell_peer(Block& block, const Exchange& e, int peer, std::uint64_t round) {
  Slot& told = e.mailboxes[peer]->slots[block.index()][e.rank];
  told.input = e.input;
  told.output = e.output;
  told.call = e.call;
  block.store(told.arrived, round);
}

/// `what`: a rank's entry in this rank's status.
template <typename Block>
DDL_HOST_DEVICE void report(Block& block, const Exchange& e, std::uint64_t& what) {
  e.status->own = e.call;
  block.store(what, 1 + e.part_of);
}

/// Waits for a peer's arrival. Returns false if it does not come or calls something else; otherwise sets
/// where its data is.
template <typename Block>
DDL_HOST_DEVICE bool hear(Block& block, const Exchange& e, int peer, std::uint64_t round, Place& input,
                          Place& output) {
  const Slot& heard = e.mailboxes[e.rank]->slots[block.index()][peer];
  if (!wait_for(block, e, heard.arrived, round)) {
    report(block, e, e.status->late[peer]);
    return false;
  }
  if (!(heard.call == e.call)) {
    if (block.index() == 0) {
      e.status->calls[peer] = heard.call;
      report(block, e, e.status->other[peer]);
    }
    return false;
  }
  input = heard.input;
  output = heard.output;
  return true;
}

/// Tells each peer where this rank's data is, and waits until each has done the same.
template <typename Block>
DDL_HOST_DEVICE void arrive(Block& block, const Exchange& e, Meeting& meeting, std::uint64_t round) {
  DDL_NO_UNROLL
  for (int peer = block.thread(); peer < e.ranks; peer += block.threads()) {
    Place input = e.input;
    Place output = e.output;
    if (peer != e.rank) tell_peer(block, e, peer, round);
    meeting.met[peer] = peer == e.rank || hear(block, e, peer, round, input, output);
    if (meeting.met[peer]) set_places(e, meeting, peer, input, output);
  }
}

/// Tells each peer that this block has read and written everything, and waits until each has done the same.
template <typename Block>
DDL_HOST_DEVICE void leave(Block& block, const Exchange& e, Meeting& meeting, std::uint64_t round) {
  DDL_NO_UNROLL
  for (int peer = block.thread(); peer < e.ranks; peer += block.threads()) {
    if (peer == e.rank) continue;
    block.store(e.mailboxes[peer]->slots[block.index()][e.rank].done, round);
    meeting.met[peer] = wait_for(block, e, e.mailboxes[e.rank]->slots[block.index()][peer].done, round);
    if (!meeting.met[peer]) report(block, e, e.status->late[peer]);
  }
}

/// Must be called after a `sync`, and before `of_ranks` changes.
DDL_HOST_DEVICE bool all_of(const Exchange& e, const bool (&of_ranks)[most_ranks]) {
  bool all = true;
  for (int rank = 0; rank < e.ranks; ++rank) all &= of_ranks[rank];
  return all;
}

/// Tells the host that the call is complete. The first block does it for all, because all blocks finish when
/// it does. Called by all threads of the block, after `leave`.
template <typename Block>
DDL_HOST_DEVICE void tell_host(Block& block, const Exchange& e, const Meeting& meeting) {
  if (block.index() != 0 || !e.is_last || e.part_of == 0) return;
  block.sync();
  if (block.thread() == 0 && all_of(e, meeting.met)) block.tell(e.status->finished, e.part_of);
}

/// Whether all ranks have arrived with the same call; then their places are known. Called by all threads of
/// the block.
template <typename Block>
DDL_HOST_DEVICE bool meet(Block& block, const Exchange& e, Meeting& meeting, std::uint64_t& round) {
  std::uint64_t& rounds = e.mailboxes[e.rank]->rounds[block.index()];
  round = rounds + 1;
  arrive(block, e, meeting, round);
  block.sync();
  if (block.thread() == 0) rounds = round;
  const bool met = all_of(e, meeting.met);
  block.sync();
  return met;
}

/// `load(rank, values)` reads `lanes` elements of a rank. Reads of `at_a_time` ranks are in flight at a time.
/// They start with this rank's own, so that not all ranks read from the same one first; sums are in rank
/// order.
template <int lanes, int at_a_time, typename Op, typename T, typename Load>
DDL_HOST_DEVICE void reduce_lanes(const Exchange& e, const Load& load, T (&results)[lanes]) {
  WideOf<T> sums[lanes];
  DDL_UNROLL
  for (int i = 0; i < lanes; ++i) sums[i] = Op::template identity<WideOf<T>>();
  DDL_NO_UNROLL
  for (int first = 0; first < e.ranks; first += at_a_time) {
    T values[at_a_time][lanes] = {};
    DDL_UNROLL
    for (int r = 0; r < at_a_time; ++r) {  // issue all reads before the first sum
      if (first + r >= e.rank && is_among(e.sources, first + r)) load(first + r, values[r]);
    }
    DDL_UNROLL
    for (int r = 0; r < at_a_time; ++r) {
      if (first + r < e.rank && is_among(e.sources, first + r)) load(first + r, values[r]);
    }
    DDL_UNROLL
    for (int r = 0; r < at_a_time; ++r) {
      if (!is_among(e.sources, first + r)) continue;
      DDL_UNROLL
      for (int i = 0; i < lanes; ++i) sums[i] = Op::apply(sums[i], widen(values[r][i]));
    }
  }
  DDL_UNROLL
  for (int i = 0; i < lanes; ++i) results[i] = narrow<T>(Op::finished(sums[i], e.divisor));
}

template <typename Put>
DDL_HOST_DEVICE void put_everywhere(const Exchange& e, const Meeting& meeting, const Put& put) {
  int rank = e.rank;  // start elsewhere on each rank, to spread the writes
  DDL_NO_UNROLL
  for (int i = 0; i < e.ranks; ++i) {
    rank = rank + 1 == e.ranks ? 0 : rank + 1;
    if (is_among(e.targets, rank)) put(meeting.targets[rank]);
  }
}

/// Transfers `packs` packs, `stride` apart. All their reads are in flight at the same time.
template <int packs, int at_a_time, typename T, typename Op>
DDL_HOST_DEVICE void transfer_packs(const Exchange& e, const Meeting& meeting, std::uint64_t at,
                                    std::uint64_t stride) {
  T values[packs * per_pack<T>];
  const auto place = [&](int pack) { return (at + static_cast<std::uint64_t>(pack) * stride) * pack_bytes; };
  const auto load = [&](int rank, T* read) {
    DDL_UNROLL
    for (int i = 0; i < packs; ++i) load_pack(meeting.sources[rank] + place(i), read + i * per_pack<T>);
  };
  reduce_lanes<packs * per_pack<T>, at_a_time, Op>(e, load, values);
  put_everywhere(e, meeting, [&](std::byte* target) {
    DDL_UNROLL
    for (int i = 0; i < packs; ++i) store_pack(target + place(i), values + i * per_pack<T>);
  });
}

template <typename T, typename Op>
DDL_HOST_DEVICE void transfer_element(const Exchange& e, const Meeting& meeting, std::uint64_t at) {
  T value[1];
  const auto load = [&](int rank, T* read) { *read = reinterpret_cast<const T*>(meeting.sources[rank])[at]; };
  reduce_lanes<1, 4, Op>(e, load, value);
  put_everywhere(e, meeting, [&](std::byte* target) { reinterpret_cast<T*>(target)[at] = *value; });
}

/// Transfers packs from `at` on, `stride` apart, as long as there are `packs_at_once` left. Returns where it
/// stops.
template <int packs_at_once, int ranks_at_once, typename T, typename Op>
DDL_HOST_DEVICE std::uint64_t transfer_run(const Exchange& e, const Meeting& meeting, std::uint64_t at,
                                           std::uint64_t stride, std::uint64_t packs) {
  DDL_NO_UNROLL
  for (; at + (packs_at_once - 1) * stride < packs; at += packs_at_once * stride) {
    transfer_packs<packs_at_once, ranks_at_once, T, Op>(e, meeting, at, stride);
  }
  return at;
}

/// Transfers this rank's range, which no other rank writes.
template <typename T, typename Op, typename Block>
DDL_HOST_DEVICE void transfer(Block& block, const Exchange& e, const Meeting& meeting) {
  constexpr int reads = sizeof(T) == 1 ? 2 : 4;  // in flight per thread: as many as registers hold
  const auto stride =
      static_cast<std::uint64_t>(block.blocks()) * static_cast<std::uint64_t>(block.threads());
  const std::uint64_t first =
      static_cast<std::uint64_t>(block.index()) * static_cast<std::uint64_t>(block.threads()) +
      static_cast<std::uint64_t>(block.thread());
  const std::uint64_t packs = all_of(e, meeting.in_packs) ? e.elements / per_pack<T> : 0;
  std::uint64_t at = first;
  const bool has_one_source = (e.sources & (e.sources - 1)) == 0;
  if (has_one_source) at = transfer_run<reads, 1, T, Op>(e, meeting, at, stride, packs);
  if constexpr (reads > 2) {
    if (e.ranks == 2) at = transfer_run<reads / 2, 2, T, Op>(e, meeting, at, stride, packs);
  }
  if constexpr (sizeof(T) >= 4) {
    if (e.ranks > reads) at = transfer_run<1, 2 * reads, T, Op>(e, meeting, at, stride, packs);
  }
  transfer_run<1, reads, T, Op>(e, meeting, at, stride, packs);
  DDL_NO_UNROLL
  for (std::uint64_t i = packs * per_pack<T> + first; i < e.elements; i += stride) {
    transfer_element<T, Op>(e, meeting, i);
  }
}

/// Each rank computes a range of its own: for large data.
template <typename T, typename Op, typename Block>
DDL_HOST_DEVICE void exchange_ranges(Block& block, const Exchange& e, Meeting& meeting) {
  std::uint64_t round = 0;
  if (!meet(block, e, meeting, round)) return;
  transfer<T, Op>(block, e, meeting);
  block.sync();
  leave(block, e, meeting, round);
  tell_host(block, e, meeting);
}

/// Every rank reduces everything for itself, one pack per thread, and writes after all ranks have read: for
/// small data. Needs at most `blocks() * threads()` packs, and this rank as the only target.
template <typename T, typename Op, typename Block>
DDL_HOST_DEVICE void exchange_all(Block& block, const Exchange& e, Meeting& meeting) {
  std::uint64_t round = 0;
  if (!meet(block, e, meeting, round)) return;
  // A block reads only what the same block of other ranks writes, in packs or not.
  const auto first = static_cast<std::uint64_t>(block.index()) * static_cast<std::uint64_t>(block.threads());
  const std::uint64_t at = (first + static_cast<std::uint64_t>(block.thread())) * per_pack<T>;
  const bool is_whole = all_of(e, meeting.in_packs) && at + per_pack<T> <= e.elements;
  const auto is_there = [&](int i) { return at + static_cast<std::uint64_t>(i) < e.elements; };
  T held[per_pack<T>];
  const auto load = [&](int rank, T* read) {
    const auto* from = reinterpret_cast<const T*>(meeting.sources[rank]) + at;
    if (is_whole) return load_pack(reinterpret_cast<const std::byte*>(from), read);
    DDL_UNROLL
    for (int i = 0; i < per_pack<T>; ++i) {
      if (is_there(i)) read[i] = from[i];
    }
  };
  reduce_lanes<per_pack<T>, sizeof(T) < 4 ? static_cast<int>(sizeof(T)) : 4, Op>(e, load, held);
  block.sync();
  leave(block, e, meeting, round);
  block.sync();
  tell_host(block, e, meeting);
  if (!all_of(e, meeting.met)) return;
  T* const to = reinterpret_cast<T*>(meeting.targets[e.rank]) + at;
  if (is_whole) return store_pack(reinterpret_cast<std::byte*>(to), held);
  DDL_UNROLL
  for (int i = 0; i < per_pack<T>; ++i) {
    if (is_there(i)) to[i] = held[i];
  }
}

}  // namespace ddl::collectives::device
