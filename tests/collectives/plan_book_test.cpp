// The choice of a call's plan. Otherwise a program with many sizes would plan all the time, or ranks would
// not notice that a topology is too small until they wait for each other.

#include "collectives/communicator/plan_book.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "ddl/error.hpp"
#include "support/thrown_error.hpp"

namespace ddl::collectives {
namespace {

using topology::Collective;

std::shared_ptr<const topology::Topology> preset(const char* name) {
  return std::make_shared<const topology::Topology>(topology::make_preset(name));
}

TEST(SizeClass, FourAnOctaveAndNeverSmallerThanTheCall) {
  std::set<std::uint64_t> classes;
  for (std::uint64_t bytes = 1; bytes <= 1 << 16; ++bytes) {
    const std::uint64_t found = size_class(bytes);
    ASSERT_GE(found, bytes);
    ASSERT_LE(found, std::max<std::uint64_t>(256, bytes + bytes / 4 + 1));
    ASSERT_EQ(size_class(found), found);
    classes.insert(found);
  }
  EXPECT_EQ(classes.size(), 1U + 4 * 8);
  EXPECT_TRUE(classes.contains(1 << 16));
  EXPECT_EQ(size_class(717'668'352), 805'306'368U);
  for (const std::uint64_t huge : {(std::uint64_t{1} << 62) + 1, ~std::uint64_t{0}}) {
    EXPECT_GE(size_class(huge), huge);
  }
}

TEST(PlanBook, CallsOfAClassShareAPlanAndBooksAgree) {
  int searches = 0;
  const auto find = [&] {
    ++searches;
    return preset("ethernet:2x2");
  };
  PlanBook book(4, find, {});
  EXPECT_EQ(searches, 0) << "discovery before anything needs it";
  const auto plan = book.plan(Collective::all_reduce, 1'000, DataType::f32);
  EXPECT_EQ(book.plan(Collective::all_reduce, 1'024, DataType::f32), plan);
  EXPECT_NE(book.plan(Collective::all_reduce, 1'025, DataType::f32), plan);
  EXPECT_NE(book.plan(Collective::broadcast, 1'000, DataType::f32), plan);
  EXPECT_EQ(searches, 1);
  EXPECT_EQ(plan->plan.bytes, 1'024U);
  EXPECT_EQ(plan->hash, topology::hash(plan->plan));
  PlanBook other(4, find, {});
  EXPECT_EQ(other.plan(Collective::all_reduce, 999, DataType::f32)->plan, plan->plan);
}

TEST(PlanBook, FollowsAnotherTopology) {
  PlanBook book(4, [] { return preset("host:4"); }, {});
  book.plan(Collective::all_reduce, 1 << 20, DataType::f32);
  book.replace_topology(preset("ethernet:4x1"));
  EXPECT_EQ(book.topology()->hosts().size(), 4U);
  EXPECT_EQ(book.plan(Collective::all_reduce, 1 << 20, DataType::f32)->plan.decomposition.ranks(), 4);
}

TEST(PlanBook, WishesHoldForCommunicatorsOfTheJobsRanks) {
  topology::Plan given;
  given.collective = Collective::broadcast;
  given.decomposition = topology::Decomposition({4}, {});
  given.dimensions = {{topology::Algorithm::tree, topology::Carrier::network}};
  given.order = {0, 1, 2, 3};
  const auto book = std::make_shared<PlanBook>(
      4, [] { return preset("ethernet:2x2"); },
      PlanWishes{.mode = topology::Mode::rings, .decomposition = {}, .plans = {given}});
  const auto algorithm_of = [](PlanBook& of, Collective collective) {
    return of.plan(collective, 1 << 20, DataType::f32)->plan.dimensions[0].algorithm;
  };
  const auto reversed = book->of_members(std::array{3, 2, 1, 0});
  EXPECT_NE(reversed, book);
  EXPECT_EQ(algorithm_of(*reversed, Collective::broadcast), topology::Algorithm::tree);
  EXPECT_EQ(algorithm_of(*reversed, Collective::all_reduce), topology::Algorithm::ring);
  const auto pair = book->of_members(std::array{1, 3});
  EXPECT_EQ(algorithm_of(*pair, Collective::broadcast), topology::Algorithm::ring) << "it is for four ranks";
  EXPECT_EQ(pair->plan(Collective::all_reduce, 8, DataType::f32)->plan.mode, topology::Mode::rings);
}

TEST(PlanBook, ATopologyThatIsTooSmallNamesBothNumbers) {
  PlanBook book(5, [] { return preset("host:4"); }, {});
  test::expect_error(ErrorCode::invalid_argument, {"4 devices, but this job has 5 ranks"},
                     [&] { book.plan(Collective::all_reduce, 8, DataType::f32); });
}

}  // namespace
}  // namespace ddl::collectives
