// How processes identify their machine and its cores.

#include "ddl/context/host_identity.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace ddl {
namespace {

TEST(Cores, AreCrowdedWhereAllRanksTogetherHaveTooFew) {
  EXPECT_FALSE(are_crowded({"11", "11"}));
  EXPECT_TRUE(are_crowded({"11", "11", "11"}));
  EXPECT_FALSE(are_crowded({"1"}));
}

TEST(Cores, AreNotCrowdedWhereEachRankIsBoundToItsOwn) {
  EXPECT_FALSE(are_crowded({"1", "01", "001", "0001"}));
  EXPECT_TRUE(are_crowded({"01", "01"}));
  EXPECT_FALSE(are_crowded({"0011", "11", "0011", "11"}));
}

// The line on slow runs would give a wrong number.
TEST(Cores, AreCountedOnceForAllRanks) {
  EXPECT_EQ(cores_in({"11", "11", "11"}), 2U);
  EXPECT_EQ(cores_in({"1", "01", "0001"}), 3U);
}

TEST(Cores, AreThoseThatThisProcessMayRunOn) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const std::string all = usable_cores();
  EXPECT_EQ(std::ranges::count(all, '1'), CPU_COUNT(&before));
  const std::size_t last = all.size() - 1;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const std::string bound = usable_cores();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(bound, std::string(last, '0') + '1');
}

TEST(Host, IsTheSameWheneverItIsAsked) {
  EXPECT_EQ(host_identity(), host_identity());
  EXPECT_FALSE(machine_identity().empty());
}

}  // namespace
}  // namespace ddl
