#include <algorithm>
#include <vector>

#include "ddl/topology/lowering.hpp"
#include "topology/partition.hpp"

namespace ddl::topology {
namespace {

/// This rank's place in a ring whose members cut a range among them.
struct RingPlace {
  int position;
  int size;
  int next;      // rank
  int previous;  // rank
  Partition pieces;
};

int wrap(int position, int size) { return ((position % size) + size) % size; }

void add(Steps& steps, StepKind kind, int peer, std::uint32_t round, Range range) {
  if (range.begin != range.end) steps.push_back({kind, peer, round, range.begin, range.end});
}

/// Round `k` of size-1: afterwards the member at position p holds the reduced piece p.
void add_reduce_scatter_round(Steps& steps, const RingPlace& ring, int k, std::uint32_t round) {
  const int out = wrap(ring.position - 1 - k, ring.size);
  add(steps, StepKind::send, ring.next, round, ring.pieces.piece(out));
  add(steps, StepKind::receive_reduce, ring.previous, round, ring.pieces.piece(wrap(out - 1, ring.size)));
}

/// Round `k` of size-1: the member at position p starts with piece p, all end with all pieces.
void add_all_gather_round(Steps& steps, const RingPlace& ring, int k, std::uint32_t round) {
  const int out = wrap(ring.position - k, ring.size);
  add(steps, StepKind::send, ring.next, round, ring.pieces.piece(out));
  add(steps, StepKind::receive, ring.previous, round, ring.pieces.piece(wrap(out - 1, ring.size)));
}

RingPlace place_in(const std::vector<int>& members, int position, Range range) {
  const int size = static_cast<int>(members.size());
  const auto at = [&](int p) { return members[static_cast<std::size_t>(wrap(p, size))]; };
  return {position, size, at(position + 1), at(position - 1), Partition(range, size)};
}

/// The segments of `shard`: the whole buffer is cut wherever some host's shards meet.
std::vector<Range> segments_of(const RankMap& map, Range shard, std::size_t count) {
  std::vector<int> host_sizes;
  for (int host = 0; host < map.hosts(); ++host) {
    host_sizes.push_back(static_cast<int>(map.ranks_of(host).size()));
  }
  std::sort(host_sizes.begin(), host_sizes.end());
  host_sizes.erase(std::unique(host_sizes.begin(), host_sizes.end()), host_sizes.end());

  if (shard.begin == shard.end) return {};
  std::vector<std::size_t> cuts{shard.begin, shard.end};
  for (const int size : host_sizes) {
    const Partition shards({0, count}, size);
    for (int i = shards.piece_of(shard.begin) + 1; i < size && shards.boundary(i) < shard.end; ++i) {
      cuts.push_back(shards.boundary(i));
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Range> segments;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) segments.push_back({cuts[i], cuts[i + 1]});
  return segments;
}

/// The ring between hosts over the owners of one segment.
RingPlace ring_between_hosts(const RankMap& map, int host, Range segment, std::size_t count) {
  const auto owner_on = [&](int other) {
    const auto& ranks = map.ranks_of(other);
    const Partition shards({0, count}, static_cast<int>(ranks.size()));
    return ranks[static_cast<std::size_t>(shards.piece_of(segment.begin))];
  };
  const int hosts = map.hosts();
  return {host, hosts, owner_on(wrap(host + 1, hosts)), owner_on(wrap(host - 1, hosts)),
          Partition(segment, hosts)};
}

}  // namespace

Steps lower_ring_all_reduce(const RankMap& map, int rank, std::size_t count) {
  require_rank(map, rank, "rank");
  std::vector<int> order;
  order.reserve(static_cast<std::size_t>(map.ranks()));
  for (int host = 0; host < map.hosts(); ++host) {
    order.insert(order.end(), map.ranks_of(host).begin(), map.ranks_of(host).end());
  }
  const int position = static_cast<int>(std::find(order.begin(), order.end(), rank) - order.begin());
  const RingPlace ring = place_in(order, position, {0, count});

  Steps steps;
  steps.reserve(static_cast<std::size_t>(4 * (ring.size - 1) + 1));
  std::uint32_t round = 0;
  for (int k = 0; k + 1 < ring.size; ++k) add_reduce_scatter_round(steps, ring, k, round++);
  add(steps, StepKind::finish, rank, round, ring.pieces.piece(position));
  for (int k = 0; k + 1 < ring.size; ++k) add_all_gather_round(steps, ring, k, round++);
  return steps;
}

Steps lower_hierarchical_all_reduce(const RankMap& map, int rank, std::size_t count) {
  require_rank(map, rank, "rank");
  const int host = map.host_of(rank);
  const RingPlace inside = place_in(map.ranks_of(host), map.local_rank(rank), {0, count});
  std::vector<RingPlace> between;
  for (const Range segment : segments_of(map, inside.pieces.piece(inside.position), count)) {
    between.push_back(ring_between_hosts(map, host, segment, count));
  }
  std::size_t largest = 0;
  for (int other = 0; other < map.hosts(); ++other) largest = std::max(largest, map.ranks_of(other).size());

  // Phases start in the same round on every host, so that a send and its receive agree on it.
  const auto rounds_inside = static_cast<std::uint32_t>(largest - 1);
  const auto rounds_between = static_cast<std::uint32_t>(map.hosts() - 1);

  Steps steps;
  for (int k = 0; k + 1 < inside.size; ++k) {
    add_reduce_scatter_round(steps, inside, k, static_cast<std::uint32_t>(k));
  }
  std::uint32_t round = rounds_inside;
  for (int k = 0; k + 1 < map.hosts(); ++k, ++round) {
    for (const RingPlace& ring : between) add_reduce_scatter_round(steps, ring, k, round);
  }
  for (const RingPlace& ring : between) {
    add(steps, StepKind::finish, rank, round, ring.pieces.piece(ring.position));
  }
  for (int k = 0; k + 1 < map.hosts(); ++k, ++round) {
    for (const RingPlace& ring : between) add_all_gather_round(steps, ring, k, round);
  }
  const std::uint32_t last_phase = rounds_inside + 2 * rounds_between;
  for (int k = 0; k + 1 < inside.size; ++k) {
    add_all_gather_round(steps, inside, k, last_phase + static_cast<std::uint32_t>(k));
  }
  return steps;
}

}  // namespace ddl::topology
