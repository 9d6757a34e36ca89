#include "ddl/learning_rate_scaling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/error.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

double decaying(std::uint64_t step) { return step < 100 ? 0.5 : 0.25; }

// The learning rate would not fit the global batch.
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

// Training with a large batch would diverge in its first steps.
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

// On four workers, a decay tuned for one worker would come after four times as many epochs.
TEST(LearningRateScaling, SchedulesCountedInSamplesComeAfterAsManySamples) {
  run_in_process(4, [](Context& context) {
    const LearningRateScaling updates(context, decaying);
    const LearningRateScaling samples(context, decaying, {.unit = ScheduleUnit::samples});
    EXPECT_EQ(updates.learning_rate(99), 0.5);
    EXPECT_EQ(updates.learning_rate(100), 0.25);
    EXPECT_EQ(samples.learning_rate(24), 0.5);
    EXPECT_EQ(samples.learning_rate(25), 0.25);  // the single worker's update 100
    std::vector<std::uint64_t> asked;
    const LearningRateScaling noted(context,
                                    [&](std::uint64_t step) {
                                      asked.push_back(step);
                                      return 1.0;
                                    },
                                    {.unit = ScheduleUnit::samples});
    for (std::uint64_t step = 0; step < 3; ++step) EXPECT_EQ(noted.learning_rate(step), 1);
    EXPECT_EQ(asked, (std::vector<std::uint64_t>{0, 4, 8}));
  });
  run_in_process(1, [](Context& context) {
    const LearningRateScaling samples(context, decaying, {.unit = ScheduleUnit::samples});
    EXPECT_EQ(samples.learning_rate(99), 0.5);
    EXPECT_EQ(samples.learning_rate(100), 0.25);
  });
}

// The ramp would end too early.
TEST(LearningRateScaling, TheRampIsCountedInUpdatesWhateverTheScheduleIs) {
  run_in_process(2, [](Context& context) {
    const LearningRateScaling scaling(
        context, decaying, {.rule = ScalingRule::linear, .ramp_steps = 100, .unit = ScheduleUnit::samples});
    EXPECT_DOUBLE_EQ(scaling.learning_rate(49), 0.5 * 1.49);
    EXPECT_DOUBLE_EQ(scaling.learning_rate(50), 0.25 * 1.5);
    EXPECT_EQ(scaling.learning_rate(100), 0.5);
  });
}

// Users would not know that the learning rate differs from theirs, and why.
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

// Users would not know how the schedule is counted, or would get a needless line with one worker.
TEST(LearningRateScaling, RootSaysWhatTheScheduleCounts) {
  const auto text_of = [](int ranks) {
    ::testing::internal::CaptureStderr();
    run_in_process(ranks, [](Context& context) {
      const LearningRateScaling scaling(context, decaying, {.unit = ScheduleUnit::samples});
    });
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(text_of(1), "");
  EXPECT_EQ(
      text_of(4),
      "ddl [0] info: schedule counted in samples: update s of 4 ranks takes the rate of update 4 s of one "
      "worker, which has seen as many samples\n");
}

TEST(LearningRateScaling, BadInputIsNamed) {
  run_in_process(1, [](Context& context) { EXPECT_THROW(LearningRateScaling(context, nullptr), Error); });
}

}  // namespace
}  // namespace ddl
