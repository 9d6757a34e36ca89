#include "topology/partition.hpp"

#include <fmt/format.h>

namespace ddl::topology {

void require_rank(const RankMap& map, int rank, const char* what) {
  if (rank >= 0 && rank < map.ranks()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} {} does not exist: this job has ranks 0 to {}", what, rank, map.ranks() - 1));
}

}  // namespace ddl::topology
