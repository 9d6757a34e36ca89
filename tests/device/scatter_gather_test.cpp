// The cuts of an all-reduce by dimension. Otherwise elements would be left out or summed twice.

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "ddl/device/dimension_calls.hpp"

namespace ddl::device {
namespace {

// Member i of a host reduces the i-th share of each range over its host, then over all hosts.
TEST(Cut, EveryElementIsInOneRangeAndSharesAreWhole) {
  for (const std::size_t unit : {1U, 2U, 3U, 8U}) {
    for (const std::size_t units : {0U, 1U, 7U, 8U, 9U, 100U, 1009U}) {
      for (const std::size_t ranges : {1U, 2U, 5U, 8U}) {
        const std::size_t count = units * unit;
        std::size_t end = 0;
        const auto found = cut(count, (count + ranges - 1) / ranges, unit);
        EXPECT_LE(found.size(), ranges);
        for (const ElementRange& range : found) {
          EXPECT_EQ(range.first, end) << "left out or twice";
          EXPECT_GT(range.count, 0U);
          EXPECT_EQ(range.count % unit, 0U);
          EXPECT_LE(range.count, found.front().count);
          end += range.count;
        }
        EXPECT_EQ(end, count);
      }
    }
  }
}

TEST(Cut, RangesAreRoundedUpToTheUnit) {
  EXPECT_EQ(cut(100, 34, 4), (std::vector<ElementRange>{{0, 36}, {36, 36}, {72, 28}}));
  EXPECT_EQ(cut(3, 0, 1), (std::vector<ElementRange>{{0, 1}, {1, 1}, {2, 1}}));
}

}  // namespace
}  // namespace ddl::device
