#include "ddl/gradients/host_hierarchy.hpp"

#include <algorithm>
#include <limits>

#include "ddl/topology/rank_map.hpp"

namespace ddl {
namespace {

int smallest_host(const topology::RankMap& map) {
  std::size_t smallest = std::numeric_limits<std::size_t>::max();
  for (int host = 0; host < map.hosts(); ++host) smallest = std::min(smallest, map.ranks_of(host).size());
  return static_cast<int>(smallest);
}

}  // namespace

HostHierarchy::HostHierarchy(Communicator& all)
    : sums(all.split(all.rank_map().host_of(all.rank()))),
      results(all.split(all.rank_map().host_of(all.rank()))),
      // Ranks without a shard have a communicator of their own, which is not used.
      across(all.split(std::min(sums.rank(), smallest_host(all.rank_map())))),
      shards(smallest_host(all.rank_map())),
      even(shards * all.rank_map().hosts() == all.size()) {}

}  // namespace ddl
