#pragma once

#include <cstdint>

#include "collectives/device/element.hpp"
#include "collectives/device/exchange.hpp"

/// What a thread of an exchange does. `Block` says where it is and how it waits: `index()`, `blocks()`,
/// `thread()`, `threads()`, `sync()`, `now_ns()`, `pause()`; and how it talks to other devices: `load`, which
/// sees what was written before the value that it finds was stored with `store`; to the host: `tell`, which
/// orders nothing.
namespace ddl::collectives::device {

/// What the threads of a block share.
struct Meeting {
  const std::byte* sources[most_ranks];  ///< Where this rank's range begins in the inputs of each,
  std::byte* targets[most_ranks];        ///< and in the outputs.
  bool met[most_ranks];
};

struct alignas(pack_bytes) Raw {
  std::uint32_t words[4];
};

template <typename T>
inline constexpr int per_pack = pack_bytes / static_cast<int>(sizeof(T));

template <typename T>
struct Pack {
  T values[per_pack<T>];
};

template <typename T>
DDL_HOST_DEVICE Pack<T> load_pack(const std::byte* from) {
  const Raw raw = *reinterpret_cast<const Raw*>(from);
  Pack<T> pack;
  __builtin_memcpy(&pack, &raw, sizeof raw);
  return pack;
}

template <typename T>
DDL_HOST_DEVICE void store_pack(std::byte* to, const Pack<T>& pack) {
  Raw raw;
  __builtin_memcpy(&raw, &pack, sizeof raw);
  *reinterpret_cast<Raw*>(to) = raw;
}

template <typename Block>
DDL_HOST_DEVICE bool wait_for(Block& block, const Exchange& e, const std::uint32_t& flag) {
  const auto is_there = [&] { return static_cast<std::int32_t>(block.load(flag) - e.number) >= 0; };
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

/// Only what is read and written has a place.
DDL_HOST_DEVICE void set_places(const Exchange& e, Meeting& meeting, int rank, const Place& input,
                                const Place& output) {
  if (is_among(e.sources, rank)) meeting.sources[rank] = pointer_to(e, input, rank, e.source_piece);
  if (is_among(e.targets, rank)) meeting.targets[rank] = pointer_to(e, output, rank, e.target_piece);
}

/// Tells each peer where this rank's data is, and waits until it has told the same.
template <typename Block>
DDL_HOST_DEVICE void arrive(Block& block, const Exchange& e, Meeting& meeting) {
  for (int peer = block.thread(); peer < e.ranks; peer += block.threads()) {
    meeting.met[peer] = true;
    if (peer == e.rank) {
      set_places(e, meeting, peer, e.input, e.output);
      continue;
    }
    Slot& told = e.mailboxes[peer]->slots[block.index()][e.rank];
    told.input = e.input;
    told.output = e.output;
    told.call = e.call;
    block.store(told.arrived, e.number);
    const Slot& heard = e.mailboxes[e.rank]->slots[block.index()][peer];
    if (!wait_for(block, e, heard.arrived)) {
      meeting.met[peer] = false;
      block.store(e.status->late[peer], e.part_of);
    } else if (!(heard.call == e.call)) {
      meeting.met[peer] = false;
      if (block.index() == 0) {
        e.status->calls[peer] = heard.call;
        block.store(e.status->other[peer], e.part_of);
      }
    } else {
      set_places(e, meeting, peer, heard.input, heard.output);
    }
  }
}

/// Tells each peer that this block has read and written all, and waits until it has told the same.
template <typename Block>
DDL_HOST_DEVICE void leave(Block& block, const Exchange& e, Meeting& meeting) {
  for (int peer = block.thread(); peer < e.ranks; peer += block.threads()) {
    if (peer == e.rank) continue;
    block.store(e.mailboxes[peer]->slots[block.index()][e.rank].done, e.number);
    meeting.met[peer] = wait_for(block, e, e.mailboxes[e.rank]->slots[block.index()][peer].done);
    if (!meeting.met[peer]) block.store(e.status->late[peer], e.part_of);
  }
}

/// Only between two calls of `sync`.
DDL_HOST_DEVICE bool all_met(const Exchange& e, const Meeting& meeting) {
  bool all = true;
  for (int peer = 0; peer < e.ranks; ++peer) all = all && meeting.met[peer];
  return all;
}

/// Tells the host that the call is over: the first block speaks for all, which end when it does. All threads
/// of the block, after `leave`.
template <typename Block>
DDL_HOST_DEVICE void tell_host(Block& block, const Exchange& e, const Meeting& meeting) {
  if (block.index() != 0 || !e.is_last) return;
  block.sync();
  if (block.thread() == 0 && all_met(e, meeting)) block.tell(e.status->finished, e.part_of);
}

/// Whether all are there, and call the same: the places are known then. All threads of the block.
template <typename Block>
DDL_HOST_DEVICE bool meet(Block& block, const Exchange& e, Meeting& meeting) {
  arrive(block, e, meeting);
  block.sync();
  const bool met = all_met(e, meeting);
  block.sync();
  return met;
}

/// Whether all that this rank reads and writes can be read and written in packs.
DDL_HOST_DEVICE bool in_packs(const Exchange& e, const Meeting& meeting) {
  std::uintptr_t places = 0;
  for (int rank = 0; rank < e.ranks; ++rank) {
    if (is_among(e.sources, rank)) {
      places |= reinterpret_cast<std::uintptr_t>(meeting.sources[rank]);
    }
    if (is_among(e.targets, rank)) {
      places |= reinterpret_cast<std::uintptr_t>(meeting.targets[rank]);
    }
  }
  return places % pack_bytes == 0;
}

template <typename T, typename Op>
DDL_HOST_DEVICE T reduced_element(const Exchange& e, const Meeting& meeting, std::uint64_t at) {
  bool is_first = true;
  WideOf<T> sum{};
  for (int rank = 0; rank < e.ranks; ++rank) {
    if (!is_among(e.sources, rank)) continue;
    const WideOf<T> value = widen(*reinterpret_cast<const T*>(meeting.sources[rank] + at * sizeof(T)));
    sum = is_first ? value : Op::apply(sum, value);
    is_first = false;
  }
  return narrow<T>(e.divisor > 1 ? divided(sum, e.divisor) : sum);
}

template <typename T>
DDL_HOST_DEVICE void put_element(const Exchange& e, const Meeting& meeting, std::uint64_t at, T value) {
  for (int rank = 0; rank < e.ranks; ++rank) {
    if (!is_among(e.targets, rank)) continue;
    *reinterpret_cast<T*>(meeting.targets[rank] + at * sizeof(T)) = value;
  }
}

/// `unroll` packs, `stride` packs apart from one another: as many reads are under way at a time.
template <int unroll, typename T, typename Op>
DDL_HOST_DEVICE void reduce_packs(const Exchange& e, const Meeting& meeting, std::uint64_t at,
                                  std::uint64_t stride, Pack<T> (&results)[unroll]) {
  WideOf<T> sums[unroll][per_pack<T>] = {};
  bool is_first = true;
  for (int rank = 0; rank < e.ranks; ++rank) {
    if (!is_among(e.sources, rank)) continue;
    const std::byte* from = meeting.sources[rank];
    Pack<T> packs[unroll];
    DDL_UNROLL
    for (int u = 0; u < unroll; ++u) {
      packs[u] = load_pack<T>(from + (at + static_cast<std::uint64_t>(u) * stride) * pack_bytes);
    }
    DDL_UNROLL
    for (int u = 0; u < unroll; ++u) {
      DDL_UNROLL
      for (int i = 0; i < per_pack<T>; ++i) {
        const WideOf<T> value = widen(packs[u].values[i]);
        sums[u][i] = is_first ? value : Op::apply(sums[u][i], value);
      }
    }
    is_first = false;
  }
  DDL_UNROLL
  for (int u = 0; u < unroll; ++u) {
    DDL_UNROLL
    for (int i = 0; i < per_pack<T>; ++i) {
      results[u].values[i] = narrow<T>(e.divisor > 1 ? divided(sums[u][i], e.divisor) : sums[u][i]);
    }
  }
}

template <int unroll, typename T>
DDL_HOST_DEVICE void put_packs(const Exchange& e, const Meeting& meeting, std::uint64_t at,
                               std::uint64_t stride, const Pack<T> (&results)[unroll]) {
  for (int i = 1; i <= e.ranks; ++i) {
    const int rank = (e.rank + i) % e.ranks;  // not all ranks to the same one at a time
    if (!is_among(e.targets, rank)) continue;
    std::byte* to = meeting.targets[rank];
    DDL_UNROLL
    for (int u = 0; u < unroll; ++u) {
      store_pack(to + (at + static_cast<std::uint64_t>(u) * stride) * pack_bytes, results[u]);
    }
  }
}

template <int unroll, typename T, typename Op>
DDL_HOST_DEVICE void transfer_packs(const Exchange& e, const Meeting& meeting, std::uint64_t at,
                                    std::uint64_t stride) {
  Pack<T> results[unroll];
  reduce_packs<unroll, T, Op>(e, meeting, at, stride, results);
  put_packs<unroll, T>(e, meeting, at, stride, results);
}

/// The range of this rank, which no other one writes to.
template <typename T, typename Op, typename Block>
DDL_HOST_DEVICE void transfer(Block& block, const Exchange& e, const Meeting& meeting) {
  constexpr int unroll = sizeof(T) == 1 ? 2 : 4;
  const auto stride =
      static_cast<std::uint64_t>(block.blocks()) * static_cast<std::uint64_t>(block.threads());
  const std::uint64_t first =
      static_cast<std::uint64_t>(block.index()) * static_cast<std::uint64_t>(block.threads()) +
      static_cast<std::uint64_t>(block.thread());
  const std::uint64_t packs = in_packs(e, meeting) ? e.elements / per_pack<T> : 0;
  std::uint64_t at = first;
  for (; at + (unroll - 1) * stride < packs; at += unroll * stride) {
    transfer_packs<unroll, T, Op>(e, meeting, at, stride);
  }
  for (; at < packs; at += stride) transfer_packs<1, T, Op>(e, meeting, at, stride);
  for (std::uint64_t i = packs * per_pack<T> + first; i < e.elements; i += stride) {
    put_element<T>(e, meeting, i, reduced_element<T, Op>(e, meeting, i));
  }
}

/// Each rank computes a range of its own: for large data.
template <typename T, typename Op, typename Block>
DDL_HOST_DEVICE void exchange_ranges(Block& block, const Exchange& e, Meeting& meeting) {
  if (!meet(block, e, meeting)) return;
  transfer<T, Op>(block, e, meeting);
  block.sync();
  leave(block, e, meeting);
  tell_host(block, e, meeting);
}

/// Every rank reduces everything for itself, a pack a thread, and writes once all have read: for little data.
/// Needs `blocks() * threads()` packs or less, and this rank as the only target.
template <typename T, typename Op, typename Block>
DDL_HOST_DEVICE void exchange_all(Block& block, const Exchange& e, Meeting& meeting) {
  if (!meet(block, e, meeting)) return;
  // A block reads what the same block of others writes, whether in packs or not.
  const auto first = static_cast<std::uint64_t>(block.index()) * static_cast<std::uint64_t>(block.threads());
  const std::uint64_t pack = first + static_cast<std::uint64_t>(block.thread());
  const bool is_whole = in_packs(e, meeting) && (pack + 1) * per_pack<T> <= e.elements;
  Pack<T> held[1] = {};
  if (is_whole) {
    reduce_packs<1, T, Op>(e, meeting, pack, 0, held);
  } else {
    for (int i = 0; i < per_pack<T>; ++i) {
      const std::uint64_t at = pack * per_pack<T> + static_cast<std::uint64_t>(i);
      if (at < e.elements) held[0].values[i] = reduced_element<T, Op>(e, meeting, at);
    }
  }
  block.sync();
  leave(block, e, meeting);
  block.sync();
  tell_host(block, e, meeting);
  if (!all_met(e, meeting)) return;
  if (is_whole) return put_packs<1, T>(e, meeting, pack, 0, held);
  for (int i = 0; i < per_pack<T>; ++i) {
    const std::uint64_t at = pack * per_pack<T> + static_cast<std::uint64_t>(i);
    if (at < e.elements) put_element<T>(e, meeting, at, held[0].values[i]);
  }
}

}  // namespace ddl::collectives::device
