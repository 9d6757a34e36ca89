#include "ddl/gradients/elementwise.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ddl/gradients/elementwise_kernels.hpp"
#include "support/float_values.hpp"

namespace {

using ddl::collectives::InstructionSet;
namespace elementwise = ddl::elementwise;
using ddl::test::values_of;

/// The values' bits; all NaNs have the same.
std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) {
    bits.push_back(std::isnan(value) ? 0x7fc0'0000U : std::bit_cast<std::uint32_t>(value));
  }
  return bits;
}

class Elementwise : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (GetParam() > ddl::collectives::native_instruction_set()) {
      GTEST_SKIP() << "this machine does not have " << to_string(GetParam());
    }
  }
  const elementwise::Kernels& kernels = elementwise::kernels_of(GetParam());
};

constexpr std::size_t most = 140;  // more than four iterations of the loops, with every remainder
constexpr double third = 1.0 / 3;

/// The expected product. The factor is split into two floats, neither greater than it; the product with the
/// smaller one and the sum are rounded.
float scaled(float value, double factor) {
  const double magnitude = std::abs(factor);
  if (!(magnitude > 0x1p-64 && magnitude < 0x1p64)) return static_cast<float>(value * factor);
  auto high = static_cast<float>(factor);
  if (std::abs(high) > magnitude) high = std::nextafter(high, 0.0f);
  const auto low = static_cast<float>(factor - high);
  return low == 0 ? value * high : std::fma(value, high, value * low);
}

TEST_P(Elementwise, ScalesAlikeEverywhere) {
  for (const double factor : {third, 1.0 / 3200, 1.0 / 4096, -1.0 / 7, 3.0, 1e-30, 1e30, 0.0}) {
    for (std::size_t count = 0; count <= most; ++count) {
      const auto source = values_of(count, 1);
      std::vector<float> in_place = source;
      std::vector<float> target(count + 1, 7.0f);  // the last element must not change
      kernels.scale_into(in_place.data(), in_place.data(), count, factor);
      kernels.scale_into(target.data(), source.data(), count, factor);
      std::vector<float> expected(count);
      for (std::size_t i = 0; i < count; ++i) expected[i] = scaled(source[i], factor);
      EXPECT_EQ(bits(in_place), bits(expected)) << count << " by " << factor;
      EXPECT_EQ(target.back(), 7.0f);
      target.pop_back();
      EXPECT_EQ(bits(target), bits(expected)) << count << " by " << factor;
    }
  }
}

/// Uses values for which rounding the product and then the sum gives another result.
TEST_P(Elementwise, ScalesAreRoundedOnce) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    const double factor = 1.0 / static_cast<double>(1 + random() % 1'000'000);
    std::vector<float> values(1000);
    for (float& value : values) value = static_cast<float>(random() % 16'777'216) - 8'388'608.0f;
    std::vector<float> result = values;
    kernels.scale_into(result.data(), result.data(), result.size(), factor);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const long double exact = static_cast<long double>(values[i]) * factor;
      const long double ulp = std::ldexp(1.0L, std::ilogb(result[i] == 0 ? 1.0f : result[i]) - 23);
      ASSERT_LE(std::abs(result[i] - exact), ulp * (0.5L + 0x1p-20L)) << values[i] << " by " << factor;
      ASSERT_EQ(result[i], scaled(values[i], factor)) << values[i] << " by " << factor;
    }
  }
}

TEST_P(Elementwise, MeansOfWholeNumbersThatAreWholeAreExact) {
  std::vector<float> sums, means;
  for (int weight = 1; weight < 4000; weight += 7) {
    sums.clear();
    means.clear();
    for (int mean = -2000; mean <= 2000; mean += 37) {
      means.push_back(static_cast<float>(mean));
      sums.push_back(static_cast<float>(mean * weight));
    }
    kernels.scale_into(sums.data(), sums.data(), sums.size(), 1.0 / weight);
    ASSERT_EQ(sums, means) << weight;
  }
}

TEST_P(Elementwise, AddsScaledInDoubleAndRoundsOnce) {
  for (std::size_t count = 0; count <= most; ++count) {
    const auto source = values_of(count, 1);
    const auto before = values_of(count, 2);
    std::vector<float> sum = before;
    kernels.add_scaled(sum.data(), source.data(), count, third);
    std::vector<float> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      const double product = source[i] * third;
      expected[i] = static_cast<float>(before[i] + product);
    }
    EXPECT_EQ(bits(sum), bits(expected)) << count;
  }
}

double squares_in_double(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

/// The expected sum: 32 lanes of floats, folded to 8 lanes of doubles after each block.
double squares(const std::vector<float>& values) {
  double totals[8] = {};
  const std::size_t whole = values.size() - values.size() % 32;
  for (std::size_t block = 0; block < whole; block += 512) {
    float lanes[32] = {};
    for (std::size_t i = block; i < std::min(block + 512, whole); ++i) lanes[i % 32] += values[i] * values[i];
    for (const std::size_t half : {16U, 8U}) {
      for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    for (std::size_t lane = 0; lane < 8; ++lane) totals[lane] += lanes[lane];
  }
  double sum = 0;
  for (const double total : totals) sum += total;
  for (std::size_t i = whole; i < values.size(); ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

std::vector<float> normal_values(std::size_t count, float size) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST_P(Elementwise, SumsOfSquaresHaveOneOrder) {
  for (std::size_t count = 0; count <= 1200; ++count) {
    const auto values = normal_values(count, 0.01f);
    const double sum = kernels.sum_of_squares(values.data(), count);
    EXPECT_EQ(sum, squares(values)) << count;
    EXPECT_NEAR(sum, squares_in_double(values), sum * 1e-6) << count;

    std::vector<float> only_scaled = values;
    kernels.scale_into(only_scaled.data(), only_scaled.data(), count, third);
    std::vector<float> both = values;
    EXPECT_EQ(kernels.square_and_scale(both.data(), count, third), sum) << count;
    EXPECT_EQ(bits(both), bits(only_scaled)) << count;
  }
}

TEST_P(Elementwise, SumsOfManySquaresAreClose) {
  const auto values = normal_values(300'001, 0.01f);
  const double exact = squares_in_double(values);
  EXPECT_NEAR(kernels.sum_of_squares(values.data(), values.size()), exact, exact * 1e-7);
  std::vector<float> scaled = values;
  EXPECT_NEAR(kernels.square_and_scale(scaled.data(), scaled.size(), third), exact, exact * 1e-7);
}

/// Uses values whose squares are infinite or zero in float.
TEST_P(Elementwise, SquaresOfTheGreatestAndOfTheLeast) {
  for (const float size : {3e38f, 1e25f, 1e-18f, 1e-25f, 1e-36f}) {
    for (const std::size_t count : {1U, 31U, 33U, 700U, 20'000U}) {
      std::vector<float> values(count,
                                1.0f);  // the squares of one part are in range, those of the other are not
      std::fill_n(values.begin(), std::min<std::size_t>(count, 8192), size);
      const double exact = squares_in_double(values);
      EXPECT_NEAR(kernels.sum_of_squares(values.data(), count), exact, exact * 1e-6) << size;
      EXPECT_NEAR(kernels.square_and_scale(values.data(), count, third), exact, exact * 1e-6) << size;
    }
  }
  std::vector<float> zeros(1000);
  EXPECT_EQ(kernels.sum_of_squares(zeros.data(), zeros.size()), 0);
  EXPECT_EQ(kernels.square_and_scale(zeros.data(), zeros.size(), third), 0);
}

TEST_P(Elementwise, WhatIsNotFiniteShowsInTheSum) {
  for (std::size_t at = 0; at < most; ++at) {
    for (const float what :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> values(most, 1.0f);
      values[at] = what;
      EXPECT_FALSE(std::isfinite(kernels.sum_of_squares(values.data(), most))) << at;
      EXPECT_FALSE(std::isfinite(kernels.square_and_scale(values.data(), most, third))) << at;
      EXPECT_FALSE(std::isfinite(values[at])) << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Elementwise, testing::Values(InstructionSet::baseline, InstructionSet::avx2),
                         [](const auto& set) { return std::string(to_string(set.param)); });

}  // namespace
