// The generator of dropout. Otherwise a run could not be repeated elsewhere, and ranks would not use the
// masks of the run on one rank.

#include "nmt_example/backend/philox.hpp"

#include <gtest/gtest.h>

#include <set>

namespace nmt {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Philox, KnownAnswersOfRandom123) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, KeysDifferInEveryPartOfTheirName) {
  std::set<std::array<std::uint32_t, 2>> keys;
  for (const std::uint64_t seed : {0ull, 1ull, 1ull << 32})
    for (const std::uint64_t step : {0ull, 1ull, 1ull << 32})
      for (const std::uint32_t site : {0u, 1u, 2u}) keys.insert(DropoutKey{seed, step, site}.philox_key());
  EXPECT_EQ(keys.size(), 27u);
}

TEST(Philox, ThresholdIsTheRate) {
  EXPECT_EQ(dropout_threshold(0), 0u);
  EXPECT_EQ(dropout_threshold(0.5), 0x80000000u);
  EXPECT_EQ(dropout_threshold(0.25), 0x40000000u);
}

}  // namespace
}  // namespace nmt
