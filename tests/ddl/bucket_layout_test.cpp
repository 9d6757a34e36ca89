#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "ddl/gradients/buckets.hpp"
#include "ddl/hash.hpp"

namespace ddl {
namespace {

using Counts = std::vector<std::size_t>;

Counts reversed(std::size_t count) {
  Counts order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::vector<std::vector<GradientPiece>> pieces(const std::vector<BucketLayout>& layouts) {
  std::vector<std::vector<GradientPiece>> all;
  for (const BucketLayout& layout : layouts) all.push_back(layout.pieces);
  return all;
}

using Pieces = std::vector<std::vector<GradientPiece>>;

Pieces cut(const Counts& counts, std::size_t bucket, const Counts& order, std::size_t multiple = 1) {
  return pieces(bucket_layout(
      {.counts = counts, .rows = {}, .order = order, .bucket_bytes = 4 * bucket, .multiple = multiple}));
}

// Users would lose overlap with backward (buckets too large or in the wrong order) or bandwidth (too small).
TEST(BucketLayout, BucketsFillInOrderOfReadiness) {
  EXPECT_EQ(cut({4, 4, 4, 4}, 8, reversed(4)), (Pieces{{{2, 0, 4}, {3, 0, 4}}, {{0, 0, 4}, {1, 0, 4}}}));
  EXPECT_EQ(cut({4, 4, 4}, 8, {1, 0, 2}), (Pieces{{{0, 0, 4}, {1, 0, 4}}, {{2, 0, 4}}}));
  EXPECT_EQ(cut({6, 6}, 8, reversed(2)), (Pieces{{{1, 0, 6}}, {{0, 0, 6}}}))
      << "half full ends with a gradient";
  EXPECT_EQ(cut({0, 0}, 1, reversed(2)), Pieces{});
  EXPECT_EQ(cut({}, 8, {}), Pieces{});
}

// One bucket would hold most of the bytes, and backward could not hide its reduction.
TEST(BucketLayout, LargeGradientsAreCutBesideTheOneThatComesNext) {
  EXPECT_EQ(cut({2, 20, 2}, 8, reversed(3)),
            (Pieces{{{1, 14, 6}, {2, 0, 2}}, {{1, 6, 8}}, {{0, 0, 2}, {1, 0, 6}}}));
  EXPECT_EQ(cut({2, 20, 2}, 8, {0, 1, 2}),
            (Pieces{{{0, 0, 2}, {1, 0, 6}}, {{1, 6, 8}}, {{1, 14, 6}, {2, 0, 2}}}));
}

// Shards of equal size would need a copy of the gradients.
TEST(BucketLayout, CountsAreMultiplesAndTheRestGoesToTheNextBucket) {
  EXPECT_EQ(cut({5, 6}, 6, reversed(2), 4), (Pieces{{{1, 2, 4}}, {{0, 3, 2}, {1, 0, 2}}, {{0, 0, 3}}}));
  const auto last = bucket_layout(
      {.counts = Counts{5, 6}, .rows = {}, .order = reversed(2), .bucket_bytes = 24, .multiple = 4});
  EXPECT_EQ(last.back().padding, 1u);
  EXPECT_EQ(last.back().count(), 4u);
}

TEST(BucketLayout, RowsAreABucketOfTheirOwn) {
  const std::vector<std::uint8_t> rows = {0, 1, 0};
  const auto layouts = bucket_layout(
      {.counts = Counts{4, 100, 4}, .rows = rows, .order = reversed(3), .bucket_bytes = 32, .multiple = 3});
  ASSERT_EQ(layouts.size(), 3u);
  EXPECT_TRUE(layouts[0].rows);
  EXPECT_EQ(layouts[0].pieces, (std::vector<GradientPiece>{{1, 0, 100}}));
  EXPECT_EQ(layouts[0].padding, 0u);
}

// Elements would be reduced twice, or never.
TEST(BucketLayout, EveryElementIsInOneBucket) {
  SplitMix64 random(1, 1);
  for (int round = 0; round < 2000; ++round) {
    Counts counts(1 + random.below(12));
    for (std::size_t& count : counts) count = random.below(4) == 0 ? random.below(200) : random.below(9);
    Counts order = reversed(counts.size());
    if (round % 2 == 0) shuffle(std::span(order), random);
    const std::size_t bucket = 1 + random.below(40);
    const std::size_t multiple = 1 + random.below(16);
    std::vector<std::uint8_t> rows(counts.size());
    if (round % 3 == 0) rows[random.below(rows.size())] = 1;
    std::vector<std::vector<int>> seen;
    for (const std::size_t count : counts) seen.emplace_back(count);
    const auto layouts = bucket_layout({counts, rows, order, 4 * bucket, multiple});
    for (const BucketLayout& layout : layouts) {
      if (!layout.rows) {
        EXPECT_EQ(layout.count() % multiple, 0u);
        EXPECT_LE(layout.count(), std::max(bucket, multiple) + multiple);
        EXPECT_TRUE(layout.padding == 0 || &layout == &layouts.back() || layouts.back().rows);
      }
      EXPECT_TRUE(std::ranges::is_sorted(layout.pieces, {}, &GradientPiece::gradient));
      for (const GradientPiece& piece : layout.pieces) {
        EXPECT_GT(piece.count, 0u);
        for (std::size_t i = 0; i < piece.count; ++i) ++seen.at(piece.gradient).at(piece.first + i);
      }
    }
    for (const auto& gradient : seen) EXPECT_EQ(std::ranges::count(gradient, 1), std::ssize(gradient));
  }
}

// Users would lose overlap with backward (a last bucket that takes long), or, with many hosts, most of a step
// to the latency of small buckets.
TEST(BucketSize, LeavesLeastToTheEndOfBackward) {
  // A plan's prediction is for its class of sizes, twice the bytes here.
  const auto plans = [](double latency_us, double us_a_byte) {
    return [=](std::size_t bytes) {
      topology::Plan plan;
      plan.bytes = 2 * bytes;
      plan.predicted_us = 2 * (latency_us + us_a_byte * static_cast<double>(bytes));
      return plan;
    };
  };
  constexpr std::size_t total = std::size_t{64} << 20;
  // Without bucket_us, the best size is near sqrt(total latency / (4 us_a_byte)).
  EXPECT_EQ(least_exposed_bytes(total, 0, plans(1 << 10, 1e-3)), std::size_t{4} << 20);
  EXPECT_EQ(least_exposed_bytes(total, 0, plans(1 << 12, 1e-3)), std::size_t{8} << 20);
  EXPECT_EQ(least_exposed_bytes(total, 256, plans(0, 1e-3)), std::size_t{4} << 20)
      << "the thread's time counts in full";
  EXPECT_EQ(least_exposed_bytes(total, 4, plans(1e6, 1e-3)), total) << "all in one";
  EXPECT_EQ(least_exposed_bytes(total, 0, plans(0, 1e-3)), total / 32) << "no more than 32";
  EXPECT_EQ(least_exposed_bytes(100, 4, plans(1, 1e-3)), std::size_t{16} << 10)
      << "all in one, with room to spare";
}

}  // namespace
}  // namespace ddl
