#pragma once

#include <cstddef>
#include <cstdint>

#include "ddl/topology/rank_map.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

// Each lowering writes the steps of one rank; it needs time and memory for that rank's steps only.
// n ranks, H hosts, L ranks on the rank's host. `count` may be 0. Errors: `invalid_argument` for a
// rank or root outside the map.

/// All-reduce over one ring of all ranks, ordered by host so that each host is entered and left once:
/// reduce-scatter, then all-gather, 2(n-1) rounds of about count/n elements (Patarasuk and Yuan,
/// 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations").
Steps lower_ring_all_reduce(const RankMap& map, int rank, std::size_t count);

/// Two-level all-reduce: ring reduce-scatter inside each host, ring all-reduce between hosts of each
/// segment, ring all-gather inside each host. Hosts may hold different numbers of ranks: the buffer
/// is cut at the union of all hosts' shard boundaries, so each segment has one owner on every host.
/// 2(max L - 1) + 2(H - 1) rounds; a host's link carries 2 count (H-1)/H elements each way.
Steps lower_hierarchical_all_reduce(const RankMap& map, int rank, std::size_t count);

/// How a broadcast spreads among the members of a level.
enum class TreeShape : std::uint8_t {
  chain,     ///< Each member sends once: best for long buffers, pipelined in chunks.
  binomial,  ///< ceil(log2 n) levels: best for short buffers.
};

/// Broadcast from `root`: over one leader per host (the root on its own host), then inside each host.
/// Sent in chunks of `chunk` elements (at least 1) that follow each other down the tree.
Steps lower_broadcast(const RankMap& map, int rank, std::size_t count, int root, std::size_t chunk,
                      TreeShape shape);

/// Dissemination barrier over a buffer of one element that holds nothing: ceil(log2 n) rounds
/// (Hensgen, Finkel and Manber, 1988, "Two algorithms for barrier synchronization").
Steps lower_barrier(const RankMap& map, int rank);

}  // namespace ddl::topology
