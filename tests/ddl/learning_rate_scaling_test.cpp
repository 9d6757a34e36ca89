#include "ddl/learning_rate_scaling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "ddl/context.hpp"
#include "ddl/error.hpp"

namespace ddl {
namespace {

double decaying(std::uint64_t step) { return step < 100 ? 0.5 : 0.25; }

// Lost otherwise: a learning rate that does not fit the global batch.
TEST(LearningRateScaling, FactorFollowsRuleAndRanks) {
  run_in_process(4, [](Context& context) {
    const LearningRateScaling none(context, decaying);
    const LearningRateScaling linear(context, decaying, {.rule = ScalingRule::linear});
    const LearningRateScaling root(context, decaying, {.rule = ScalingRule::square_root});
    EXPECT_EQ(none.factor(), 1);
    EXPECT_EQ(linear.factor(), 4);
    EXPECT_EQ(root.factor(), 2);
    EXPECT_EQ(none.learning_rate(0), 0.5);
    EXPECT_EQ(linear.learning_rate(0), 2.0);
    EXPECT_EQ(root.learning_rate(150), 0.5);
  });
}

// Lost otherwise: divergence in the first steps of a large batch.
TEST(LearningRateScaling, RampGrowsFromOneToTheFactor) {
  run_in_process(3, [](Context& context) {
    const LearningRateScaling scaling(context, decaying, {.rule = ScalingRule::linear, .ramp_steps = 200});
    EXPECT_EQ(scaling.learning_rate(0), 0.5);
    EXPECT_DOUBLE_EQ(scaling.learning_rate(50), 0.5 * 1.5);
    EXPECT_DOUBLE_EQ(scaling.learning_rate(100), 0.25 * 2);
    EXPECT_EQ(scaling.learning_rate(200), 0.75);
    EXPECT_EQ(scaling.learning_rate(1000000), 0.75);
  });
}

// Lost otherwise: knowing that, and why, the learning rate is not the one that was asked for.
TEST(LearningRateScaling, RootSaysWhatItChanged) {
  ::testing::internal::CaptureStderr();
  run_in_process(4, [](Context& context) {
    const LearningRateScaling scaling(context, decaying, {.rule = ScalingRule::linear, .ramp_steps = 7});
  });
  const std::string text = ::testing::internal::GetCapturedStderr();
  for (const char* part : {"learning rate times 4", "linear", "4 ranks", "7 steps"}) {
    const std::size_t at = text.find(part);
    ASSERT_NE(at, std::string::npos) << part << " not in: " << text;
    EXPECT_EQ(text.find(part, at + 1), std::string::npos) << "more than once: " << text;
  }
}

TEST(LearningRateScaling, BadInputIsNamed) {
  EXPECT_EQ(parse_scaling_rule("none"), ScalingRule::none);
  EXPECT_EQ(parse_scaling_rule("linear"), ScalingRule::linear);
  EXPECT_EQ(parse_scaling_rule("square_root"), ScalingRule::square_root);
  try {
    parse_scaling_rule("sqrt");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("'sqrt'"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("square_root"), std::string::npos) << error.what();
  }
  run_in_process(1, [](Context& context) { EXPECT_THROW(LearningRateScaling(context, nullptr), Error); });
}

}  // namespace
}  // namespace ddl
