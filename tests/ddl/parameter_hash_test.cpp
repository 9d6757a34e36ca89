#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "ddl/parameters/parameters.hpp"

namespace ddl {
namespace {

std::vector<float> some_values(std::size_t size) {
  std::mt19937 random(7);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random()) * 0x1p-32F - 0.5F;
  return values;
}

std::uint64_t hash(const std::vector<float>& values) { return hash_of(std::span(values)); }

// Parameters that differ in a single bit would pass as equal.
TEST(ParameterHash, EveryFlippedBitIsSeen) {
  for (const std::size_t size : {1, 2, 15, 16, 17, 100}) {
    std::vector<float> values = some_values(size);
    std::set<std::uint64_t> hashes = {hash(values)};
    for (float& value : values) {
      for (unsigned bit = 0; bit < 32; ++bit) {
        const float before = value;
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1U << bit));
        EXPECT_TRUE(hashes.insert(hash(values)).second) << "bit " << bit << " of one of " << size;
        value = before;
      }
    }
  }
}

// -0 and +0, which compare equal but compute differently, would pass as the same, and equal NaNs as
// different.
TEST(ParameterHash, ValuesAreTheirBits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float other_nan = std::bit_cast<float>(std::bit_cast<std::uint32_t>(nan) ^ 1U);
  EXPECT_NE(hash({0.0F}), hash({-0.0F}));
  EXPECT_NE(hash({1, nan}), hash({1, other_nan}));
  EXPECT_EQ(hash({1, nan}), hash({1, nan}));
}

// Parameters that are swapped or truncated would pass as the same.
TEST(ParameterHash, OrderAndSizeCount) {
  std::vector<float> values = some_values(64);
  std::set<std::uint64_t> hashes = {hash(values)};
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      std::swap(values[i], values[j]);
      EXPECT_TRUE(hashes.insert(hash(values)).second) << i << " and " << j;
      std::swap(values[i], values[j]);
    }
  }
  for (std::size_t zeros = 0; zeros < 40; ++zeros) {
    EXPECT_TRUE(hashes.insert(hash(std::vector<float>(zeros))).second) << zeros << " zeros";
  }
  EXPECT_TRUE(hashes.insert(hash_of(std::span(values).first(0), 1)).second) << "what comes before";
}

// After an upgrade a checkpoint's state would not match its own data.
TEST(ParameterHash, IsFixedForAllTime) {
  std::vector<std::uint8_t> bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  EXPECT_EQ(hash_of(std::span(bytes)), 6584948620331487190U);
  EXPECT_EQ(hash_of(std::span(bytes).first(0)), 16677694672189883975U);
}

}  // namespace
}  // namespace ddl
