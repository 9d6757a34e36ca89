// The rules of loss scaling, by sequences of steps and overflows that were computed by hand.

#include "nmt_example/training/loss_scale.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/thrown_error.hpp"

namespace nmt {
namespace {

LossScale scale_of(LossScaling rule, double scale, std::int64_t window = 2000) {
  Options options;
  options.dtype = Dtype::mixed;
  options.loss_scaling = rule;
  options.loss_scale = scale;
  options.loss_scale_window = window;
  return make_loss_scale(options, ddl::DataType::bf16);
}

std::vector<double> values_after(LossScale& scale, const std::vector<bool>& overflows) {
  std::vector<double> values;
  for (const bool overflow : overflows) {
    scale.end_step(overflow, 1);
    values.push_back(scale.value);
  }
  return values;
}

TEST(LossScale, OffIsOneAndSkipsNothing) {
  LossScale scale = scale_of(LossScaling::off, 128);
  EXPECT_EQ(values_after(scale, {false, true, false}), std::vector<double>({1, 1, 1}));
  EXPECT_FALSE(scale.skips());
  EXPECT_EQ(state_of(scale), "");
}

TEST(LossScale, StaticStays) {
  LossScale scale = scale_of(LossScaling::constant, 100);
  EXPECT_EQ(scale.value, 100);
  EXPECT_EQ(values_after(scale, {false, true, true}), std::vector<double>({100, 100, 100}));
  EXPECT_TRUE(scale.skips());
}

// With window 3, steps count from 0: an overflow in step 1 makes steps 4, 7, ... double.
TEST(LossScale, BackoffHalvesAndDoubles) {
  LossScale scale = scale_of(LossScaling::backoff, 16, 3);
  EXPECT_EQ(scale.value, 16);
  EXPECT_EQ(values_after(scale, {false, true, false, false, false, true, true, false, false, false, false,
                                 false, false}),
            std::vector<double>({16, 8, 8, 8, 16, 8, 4, 4, 4, 8, 8, 8, 16}));
}

TEST(LossScale, BackoffStaysBetweenOneAndItsFirstValue) {
  LossScale scale = scale_of(LossScaling::backoff, 4, 1);
  EXPECT_EQ(values_after(scale, {true, true, true, true, false, false, false, false}),
            std::vector<double>({2, 1, 1, 1, 2, 4, 4, 4}));
}

// Gradients of 2^-3 in all steps: mean -3, no deviation, 2^(16 + 3).
TEST(LossScale, LogMaxFollowsTheLargestGradients) {
  LossScale scale = scale_of(LossScaling::log_max, 0x1p30);
  EXPECT_EQ(scale.value, 1);
  for (int step = 0; step < 5; ++step) {
    scale.end_step(false, 0.125);
    EXPECT_NEAR(std::log2(scale.value), 19, 1e-5);
  }
}

// x = -3 and then 16: the means, corrected, are (0.99 * 0.01 * -3 + 0.01 * 16) / (1 - 0.99^2) = 6.547739 and
// (0.999 * 0.001 * 9 + 0.001 * 256) / (1 - 0.999^2) = 132.561781, so the deviation is 9.470313.
TEST(LossScale, LogMaxTakesAnOverflowForTwoToTheSixteenth) {
  LossScale scale = scale_of(LossScaling::log_max, 0x1p30);
  scale.end_step(false, 0.125);
  scale.end_step(true);
  EXPECT_EQ(scale.value, 1) << "2^(16 - 6.55 - 29.26) is below 1";
  LossScale steady = scale_of(LossScaling::log_max, 0x1p30);
  for (int step = 0; step < 1000; ++step) steady.end_step(false, 0.125);
  steady.end_step(true);
  // 0.99 * -3 * (1 - 0.99^1000) + 0.16 = -2.809872, corrected by (1 - 0.99^1001): -2.809991; squares:
  // 0.999 * 9 * (1 - 0.999^1000) + 0.256 = 5.941227, corrected by (1 - 0.999^1001) = 0.632673: 9.390674.
  const double deviation = std::sqrt(9.390674 - 2.809991 * 2.809991);
  EXPECT_NEAR(std::log2(steady.value), 16 + 2.809991 - 3.09 * deviation, 1e-3);
}

TEST(LossScale, LogMaxIgnoresStepsWithoutGradients) {
  LossScale scale = scale_of(LossScaling::log_max, 0x1p30);
  scale.end_step(false, 0.125);
  const double before = scale.value;
  scale.end_step(false, 0);
  EXPECT_EQ(scale.value, before);
}

TEST(LossScale, ContinuesFromItsState) {
  for (const LossScaling rule : {LossScaling::backoff, LossScaling::log_max}) {
    LossScale scale = scale_of(rule, 64, 3), again = scale_of(rule, 64, 3);
    values_after(scale, {false, true, false, true, true});
    restore(again, state_of(scale));
    for (int step = 0; step < 7; ++step) {
      scale.end_step(step == 4, 0.37 * step + 0.01);
      again.end_step(step == 4, 0.37 * step + 0.01);
      EXPECT_EQ(again.value, scale.value);
    }
  }
}

TEST(LossScale, StateOfAnotherRuleIsNotTaken) {
  LossScale scale = scale_of(LossScaling::backoff, 64);
  scale.end_step(true);
  LossScale other = scale_of(LossScaling::log_max, 64);
  restore(other, state_of(scale));
  EXPECT_EQ(other.value, 1);
}

TEST(LossScale, DamagedStateIsAnError) {
  LossScale scale = scale_of(LossScaling::backoff, 64);
  ddl::test::expect_error(ddl::ErrorCode::corrupt_data, {"loss scale"},
                          [&] { restore(scale, R"({"rule": "backoff"})"); });
}

}  // namespace
}  // namespace nmt
