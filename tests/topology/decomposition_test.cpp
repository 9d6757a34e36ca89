#include "ddl/topology/decomposition.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ddl/error.hpp"

namespace ddl::topology {
namespace {

std::string refusal(std::string_view text, int ranks) {
  try {
    Decomposition::parse(text, ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << text << " was taken";
  return {};
}

TEST(Decomposition, ReadsWhatPeopleWrite) {
  const Decomposition grid = Decomposition::parse("4x8x2", 64);
  EXPECT_EQ(grid.dimensions(), 3);
  EXPECT_EQ(grid.ranks(), 64);
  EXPECT_EQ(grid.groups(), 16);
  EXPECT_FALSE(grid.ragged());
  EXPECT_EQ(grid.size(0), 4);
  EXPECT_EQ(grid.size(1), 8);
  EXPECT_EQ(grid.size(2), 2);
  EXPECT_EQ(grid, Decomposition({4}, {8, 2}));

  const Decomposition unequal = Decomposition::parse("4,3,2,1x2x2", 10);
  EXPECT_TRUE(unequal.ragged());
  EXPECT_EQ(unequal.dimensions(), 3);
  EXPECT_EQ(unequal.groups(), 4);
  EXPECT_EQ(unequal.size(0), 4);
  EXPECT_EQ(unequal, Decomposition({4, 3, 2, 1}, {2, 2}));

  EXPECT_EQ(Decomposition::parse("1", 1), Decomposition());
  EXPECT_EQ(Decomposition::parse("7", 7).dimensions(), 1);
  EXPECT_EQ(Decomposition::parse("1x7x1", 7).dimensions(), 3);
}

// Ranks that compare plans would find equal grids different.
TEST(Decomposition, GroupsOfOneSizeAreNotRagged) {
  EXPECT_EQ(Decomposition::parse("4,4x2", 8), Decomposition::parse("4x2", 8));
  EXPECT_EQ(Decomposition({3, 3, 3}, {3}), Decomposition({3}, {3}));
  EXPECT_EQ(Decomposition::parse("5,5,5x3", 15).group_begin(3), 15);
  EXPECT_NE(Decomposition::parse("4,2x2", 6), Decomposition::parse("2,4x2", 6));
}

TEST(Decomposition, WritesWhatItReads) {
  for (const auto& [text, ranks] : std::vector<std::pair<std::string, int>>{{"1", 1},
                                                                            {"16", 16},
                                                                            {"4x8x2", 64},
                                                                            {"1x1x1", 1},
                                                                            {"4,3,2,1x4", 10},
                                                                            {"4,3,2,1x2x2", 10},
                                                                            {"16777216", 16777216}}) {
    EXPECT_EQ(to_string(Decomposition::parse(text, ranks)), text);
  }
  EXPECT_EQ(to_string(Decomposition::parse("4,4x2", 8)), "4x2");
}

TEST(Decomposition, KnowsWhereGroupsAre) {
  for (const Decomposition& grid :
       {Decomposition({3}, {2, 2}), Decomposition({1}, {5}), Decomposition({4, 1, 2, 1}, {2, 2}),
        Decomposition({1, 9}, {2}), Decomposition()}) {
    SCOPED_TRACE(to_string(grid));
    int position = 0;
    for (int group = 0; group < grid.groups(); ++group) {
      EXPECT_EQ(grid.group_begin(group), position);
      EXPECT_LE(grid.group_size(group), grid.size(0));
      for (int member = 0; member < grid.group_size(group); ++member) {
        EXPECT_EQ(grid.group_of(position++), group);
      }
    }
    EXPECT_EQ(grid.group_begin(grid.groups()), position);
    EXPECT_EQ(grid.ranks(), position);
  }
}

// The message for the most common mistake would not name both numbers and the solution.
TEST(Decomposition, NamesTheProductAndTheRanks) {
  EXPECT_EQ(
      refusal("4x8x2", 60),
      "decomposition 4x8x2 has 64 positions, but there are 60 ranks: the product of its sizes must be the "
      "number of ranks");
  EXPECT_EQ(
      refusal("3", 1),
      "decomposition 3 has 3 positions, but there is 1 rank: the product of its sizes must be the number "
      "of ranks");
  EXPECT_NE(refusal("4,3x2", 8).find("has 7 positions, but there are 8 ranks: the sum of its groups' sizes"),
            std::string::npos);
  EXPECT_NE(refusal("4", 0).find("0 ranks"), std::string::npos);
  EXPECT_NE(refusal("4", -4).find("-4 ranks"), std::string::npos);
}

TEST(Decomposition, RefusesWhatIsNone) {
  for (const std::string text : {"",           "x",        "4x",        "x4",   "4xx2",
                                 "4,",         ",4",       "4,,2x2",    "0",    "0x4",
                                 "4x0",        "-4",       "+4",        "4 x2", " 4",
                                 "4 ",         "4X2",      "4x-2",      "4.0",  "4e1",
                                 "0x10",       "4x2,2",    "4;2",       "four", "99999999999999999999",
                                 "2147483648", "16777217", "4x16777217"}) {
    SCOPED_TRACE(text);
    const std::string message = refusal(text, 8);
    EXPECT_NE(message.find(fmt::format("'{}'", text)), std::string::npos) << message;
    EXPECT_NE(message.find("expected sizes from 1 to 16777216 joined by x, as in 4x8x2"), std::string::npos)
        << message;
  }
  const std::string unprintable("4\0\n\x1b\xffx2", 7);
  const std::string marks(4, '?');
  EXPECT_NE(refusal(unprintable, 8).find(fmt::format("'4{}x2': found '4{}', expected sizes", marks, marks)),
            std::string::npos)
      << refusal(unprintable, 8);
}

TEST(Decomposition, RefusesNumbersOfGroupsThatDoNotFit) {
  EXPECT_NE(refusal("4,3x3", 8).find("'4,3x3': decomposition: found the sizes of 2 groups, expected 3"),
            std::string::npos);
  EXPECT_NE(refusal("4,3,2", 9).find("found the sizes of 3 groups, expected 1"), std::string::npos);
  EXPECT_NE(refusal("4096x4096x2", 8).find("33554432"), std::string::npos);
  EXPECT_NE(refusal("2x16777216", 8).find("33554432 positions, expected at most 16777216"),
            std::string::npos);
  EXPECT_NE(refusal("16777216x16777216x16777216x16777216", 8).find("16777216 positions"), std::string::npos);
  EXPECT_NE(refusal("16777215,2x2", 8).find("found 16777217 positions"), std::string::npos);
}

// The message for long input would flood the terminal.
TEST(Decomposition, RefusesLongTextsBriefly) {
  std::string text = "2";
  for (int i = 0; i < 100000; ++i) text += "x2";
  EXPECT_LT(refusal(text, 8).size(), 400U);
  text = "1";
  for (int i = 0; i < 100000; ++i) text += "x1";
  EXPECT_LT(refusal(text, 8).size(), 400U);
  EXPECT_LT(refusal(std::string(100000, '7'), 8).size(), 400U);
}

TEST(Decomposition, IsCheckedWhenMade) {
  const auto refused = [](std::vector<int> groups, std::vector<int> outer) {
    try {
      Decomposition(std::move(groups), std::move(outer));
    } catch (const Error& error) {
      return error.code() == ErrorCode::invalid_argument;
    }
    return false;
  };
  constexpr int most = std::numeric_limits<int>::max();
  EXPECT_TRUE(refused({}, {}));
  EXPECT_TRUE(refused({}, {2}));
  EXPECT_TRUE(refused({0}, {}));
  EXPECT_TRUE(refused({4}, {0}));
  EXPECT_TRUE(refused({4}, {-2, -2}));
  EXPECT_TRUE(refused({-4, -4}, {2}));
  EXPECT_TRUE(refused({4, 3}, {}));
  EXPECT_TRUE(refused({4, 3}, {3}));
  EXPECT_TRUE(refused({4, 3, 2}, {2}));
  EXPECT_TRUE(refused({most}, {}));
  EXPECT_TRUE(refused({most, most}, {2}));
  EXPECT_TRUE(refused({1}, {most, most, most}));
  EXPECT_FALSE(refused({1 << 24}, {}));
  EXPECT_FALSE(refused({1 << 23, (1 << 23) - 1}, {2}));
}

TEST(Decomposition, RefusesDimensionsThatAreNotThere) {
  const Decomposition grid = Decomposition::parse("4x2", 8);
  EXPECT_ANY_THROW((void)grid.size(2));
  EXPECT_ANY_THROW((void)grid.size(-1));
}

}  // namespace
}  // namespace ddl::topology
