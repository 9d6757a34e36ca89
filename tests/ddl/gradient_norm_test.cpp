#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/gradients/host_queue.hpp"
#include "ddl/hash.hpp"

namespace ddl {
namespace {

/// Values of all magnitudes, from denormal to the largest.
std::vector<float> any_values(std::size_t count) {
  SplitMix64 random(7, 7);
  std::vector<float> values(count);
  for (float& value : values) {
    const double mantissa = static_cast<double>(random.below(1U << 24U)) / (1U << 23U) - 1;
    value = static_cast<float>(std::ldexp(mantissa, static_cast<int>(random.below(275)) - 148));
  }
  return values;
}

double norm_in_parts(const std::vector<float>& values, int ranks, std::size_t part, bool exact) {
  double result = 0;
  run_in_process(ranks, [&](Context& context) {
    GradientNorm norm(exact);
    norm.add(std::vector<float>{1e30f});
    norm.clear();
    const auto n = static_cast<std::size_t>(ranks);
    for (std::size_t at = 0, i = 0; at < values.size(); at += part, ++i) {
      if (i % n != static_cast<std::size_t>(context.rank())) continue;
      norm.add(std::span(values).subspan(at, std::min(part, values.size() - at)));
    }
    const double own = norm.over_all(context.communicator());
    if (context.is_root()) result = own;
  });
  return result;
}

// Clipping would differ between runs that should have the same bits.
TEST(GradientNorm, ExactHasTheSameBitsInAnyParts) {
  const std::vector<float> values = any_values(10'007);
  const double whole = norm_in_parts(values, 1, values.size(), true);
  for (const int ranks : {1, 2, 3, 7}) {
    for (const std::size_t part : {1UL, 13UL, 1000UL})
      EXPECT_EQ(norm_in_parts(values, ranks, part, true), whole);
  }
  long double sum = 0;
  for (const float value : values) sum += static_cast<long double>(value) * value;
  EXPECT_NEAR(whole / static_cast<double>(std::sqrt(sum)), 1, 1e-15);
}

TEST(GradientNorm, OrdinaryIsWithinRounding) {
  const std::vector<float> values = any_values(10'007);
  long double sum = 0;
  for (const float value : values) sum += static_cast<long double>(value) * value;
  for (const int ranks : {1, 3}) {
    EXPECT_NEAR(norm_in_parts(values, ranks, 100, false) / static_cast<double>(std::sqrt(sum)), 1, 1e-12);
  }
}

TEST(GradientNorm, ExactOfSmallestAndLargest) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float huge = std::numeric_limits<float>::max();
  EXPECT_EQ(norm_in_parts({tiny}, 1, 1, true), static_cast<double>(tiny));
  EXPECT_EQ(norm_in_parts({3.0f, -4.0f, 0.0f}, 2, 1, true), 5.0);
  EXPECT_EQ(norm_in_parts({huge}, 1, 1, true), static_cast<double>(huge));
}

// A model would be updated with NaN.
TEST(GradientNorm, IsNotFiniteWhereAValueIsNot) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    for (const bool exact : {false, true}) {
      EXPECT_FALSE(std::isfinite(norm_in_parts({1, 2, bad, 4}, 2, 1, exact)));
    }
  }
}

}  // namespace
}  // namespace ddl
