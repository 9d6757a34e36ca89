#include "ddl/topology/rank_map.hpp"

#include <gtest/gtest.h>

#include "ddl/error.hpp"

namespace ddl::topology {
namespace {

// Ranks would use the network to a neighbour on their own host.
TEST(RankMap, GroupsRanksByHostInOrderOfTheirLowestRank) {
  const RankMap map({"b", "a", "b", "c", "a", "b"});
  EXPECT_EQ(map.ranks(), 6);
  EXPECT_EQ(map.hosts(), 3);
  EXPECT_EQ(map.ranks_of(0), (std::vector<int>{0, 2, 5}));
  EXPECT_EQ(map.ranks_of(1), (std::vector<int>{1, 4}));
  EXPECT_EQ(map.ranks_of(2), (std::vector<int>{3}));
  EXPECT_EQ(map.host_name(0), "b");
  EXPECT_EQ(map.host_of(4), 1);
  EXPECT_EQ(map.local_rank(5), 2);
}

TEST(RankMap, RefusesNoRanks) {
  try {
    const RankMap map({});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace ddl::topology
