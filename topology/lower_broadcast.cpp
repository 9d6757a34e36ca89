#include <algorithm>
#include <bit>
#include <vector>

#include "ddl/topology/lowering.hpp"
#include "topology/partition.hpp"

namespace ddl::topology {
namespace {

/// A member's place in a tree over positions 0 (the top) to size-1.
struct TreePlace {
  int parent;  // position; -1 at the top
  int depth;
  std::vector<int> children;  // positions
};

TreePlace place_in_tree(int position, int size, TreeShape shape) {
  TreePlace place{-1, 0, {}};
  if (shape == TreeShape::chain) {
    place.parent = position - 1;
    place.depth = position;
    if (position + 1 < size) place.children.push_back(position + 1);
    return place;
  }
  // Binomial: clearing the lowest set bit leads to the parent. Farthest child first: it has the
  // largest subtree below it.
  const auto bits = static_cast<unsigned>(position);
  if (position != 0) place.parent = static_cast<int>(bits & (bits - 1));
  place.depth = std::popcount(bits);
  const int limit = position == 0 ? size : static_cast<int>(bits & ~(bits - 1));
  for (int distance = 1; distance < limit && position + distance < size; distance *= 2) {
    place.children.push_back(position + distance);
  }
  std::reverse(place.children.begin(), place.children.end());
  return place;
}

/// Members with `top` moved to the front, in a ring's order.
int rotated(int position, int top, int size) { return (position + top) % size; }

}  // namespace

Steps lower_broadcast(const RankMap& map, int rank, std::size_t count, int root, std::size_t chunk,
                      TreeShape shape) {
  require_rank(map, rank, "rank");
  require_rank(map, root, "root");
  if (chunk == 0) throw Error(ErrorCode::invalid_argument, "a broadcast's chunk must be at least 1 element");

  const int hosts = map.hosts();
  const int root_host = map.host_of(root);
  const int host = map.host_of(rank);
  const auto leader_index = [&](int of_host) { return of_host == root_host ? map.local_rank(root) : 0; };
  const auto leader_of = [&](int of_host) {
    return map.ranks_of(of_host)[static_cast<std::size_t>(leader_index(of_host))];
  };

  const TreePlace host_place = place_in_tree((host - root_host + hosts) % hosts, hosts, shape);
  const int local_size = static_cast<int>(map.ranks_of(host).size());
  const int top = leader_index(host);
  const TreePlace local_place =
      place_in_tree((map.local_rank(rank) - top + local_size) % local_size, local_size, shape);
  const auto local_member = [&](int position) {
    return map.ranks_of(host)[static_cast<std::size_t>(rotated(position, top, local_size))];
  };

  int parent = -1;
  std::vector<int> children;
  if (local_place.parent >= 0) {
    parent = local_member(local_place.parent);
  } else {
    if (host_place.parent >= 0) parent = leader_of(rotated(host_place.parent, root_host, hosts));
    for (const int child : host_place.children)
      children.push_back(leader_of(rotated(child, root_host, hosts)));
  }
  for (const int child : local_place.children) children.push_back(local_member(child));
  const int depth = host_place.depth + local_place.depth;

  // Chunk c crosses the edge below a member of depth d in round d + c: the chunk that a member sends
  // has arrived one round earlier, while the next one is arriving.
  const std::size_t chunks = count / chunk + (count % chunk != 0 ? 1 : 0);
  Steps steps;
  steps.reserve(chunks * (children.size() + 1));
  const auto range_of = [&](std::size_t c) { return Range{c * chunk, std::min(count, (c + 1) * chunk)}; };
  for (std::size_t c = 0; c <= chunks; ++c) {
    if (c > 0) {
      const Range range = range_of(c - 1);
      const auto round = static_cast<std::uint32_t>(static_cast<std::size_t>(depth) + c - 1);
      for (const int child : children) {
        steps.push_back({StepKind::send, child, round, range.begin, range.end});
      }
    }
    if (c < chunks && parent >= 0) {
      const Range range = range_of(c);
      const auto round = static_cast<std::uint32_t>(static_cast<std::size_t>(depth) + c - 1);
      steps.push_back({StepKind::receive, parent, round, range.begin, range.end});
    }
  }
  return steps;
}

}  // namespace ddl::topology
