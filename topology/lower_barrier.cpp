#include "ddl/topology/lowering.hpp"
#include "topology/partition.hpp"

namespace ddl::topology {

Steps lower_barrier(const RankMap& map, int rank) {
  require_rank(map, rank, "rank");
  const int ranks = map.ranks();
  Steps steps;
  std::uint32_t round = 0;
  for (int distance = 1; distance < ranks; distance *= 2, ++round) {
    steps.push_back({StepKind::send, (rank + distance) % ranks, round, 0, 1});
    steps.push_back({StepKind::receive, (rank - distance + ranks) % ranks, round, 0, 1});
  }
  return steps;
}

}  // namespace ddl::topology
