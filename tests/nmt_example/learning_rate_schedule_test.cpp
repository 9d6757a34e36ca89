#include "nmt_example/training/learning_rate_schedule.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "ddl/error.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "support/thrown_error.hpp"

namespace {

using nmt::DecayScheme;
using nmt::learning_rate_at;
using nmt::Options;
using nmt::WarmupScheme;

Options schedule(DecayScheme decay, std::int64_t steps, std::int64_t warmup = 0,
                 WarmupScheme scheme = WarmupScheme::t2t) {
  Options options;
  options.learning_rate = 2.0;
  options.decay_scheme = decay;
  options.num_train_steps = steps;
  options.warmup_steps = warmup;
  options.warmup_scheme = scheme;
  return options;
}

TEST(LearningRateSchedule, ConstantWithoutSchemes) {
  EXPECT_EQ(learning_rate_at(schedule(DecayScheme::none, 10), 0), 2.0);
  EXPECT_EQ(learning_rate_at(schedule(DecayScheme::none, 10), 1000000), 2.0);
}

TEST(LearningRateSchedule, T2tRisesFromAHundredth) {
  const Options o = schedule(DecayScheme::none, 1000, 100);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 0), 0.02);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 50), 0.2);
  EXPECT_NEAR(learning_rate_at(o, 99), 1.909985, 1e-6);  // 2 * 0.01^0.01
  EXPECT_EQ(learning_rate_at(o, 100), 2.0);
}

TEST(LearningRateSchedule, LinearWarmupNeverStartsAtZero) {
  const Options o = schedule(DecayScheme::none, 1000, 4, WarmupScheme::linear);
  EXPECT_EQ(learning_rate_at(o, 0), 0.5);
  EXPECT_EQ(learning_rate_at(o, 2), 1.5);
  EXPECT_EQ(learning_rate_at(o, 3), 2.0);
  EXPECT_EQ(learning_rate_at(o, 4), 2.0);
}

// Results published for tensorflow/nmt's schedules could not be repeated.
TEST(LearningRateSchedule, Luong5HalvesFiveTimesInTheSecondHalf) {
  const Options o = schedule(DecayScheme::luong5, 12000);  // from 6000, every 1200
  EXPECT_EQ(learning_rate_at(o, 5999), 2.0);
  EXPECT_EQ(learning_rate_at(o, 7199), 2.0);
  EXPECT_EQ(learning_rate_at(o, 7200), 1.0);
  EXPECT_EQ(learning_rate_at(o, 11999), 0.125);
  EXPECT_EQ(learning_rate_at(o, 12000), 0.0625);
}

TEST(LearningRateSchedule, Luong10HalvesTenTimesInTheSecondHalf) {
  const Options o = schedule(DecayScheme::luong10, 12000);  // from 6000, every 600
  EXPECT_EQ(learning_rate_at(o, 6599), 2.0);
  EXPECT_EQ(learning_rate_at(o, 6600), 1.0);
  EXPECT_EQ(learning_rate_at(o, 11999), 2.0 / 512);
}

TEST(LearningRateSchedule, Luong234HalvesFourTimesInTheLastThird) {
  const Options o = schedule(DecayScheme::luong234, 12000);  // from 8000, every 1000
  EXPECT_EQ(learning_rate_at(o, 8999), 2.0);
  EXPECT_EQ(learning_rate_at(o, 9000), 1.0);
  EXPECT_EQ(learning_rate_at(o, 11000), 0.25);
}

TEST(LearningRateSchedule, TinyRunsDoNotDivideByZero) {
  EXPECT_EQ(learning_rate_at(schedule(DecayScheme::luong10, 4), 3), 1.0);  // from 2, every step
  EXPECT_EQ(learning_rate_at(schedule(DecayScheme::luong5, 0), 0), 2.0);
  EXPECT_EQ(learning_rate_at(schedule(DecayScheme::cosine, 0), 0), 0.0);
}

TEST(LearningRateSchedule, CosineGoesFromWarmupToZero) {
  const Options o = schedule(DecayScheme::cosine, 1100, 100, WarmupScheme::linear);
  EXPECT_EQ(learning_rate_at(o, 49), 1.0);
  EXPECT_EQ(learning_rate_at(o, 100), 2.0);
  EXPECT_NEAR(learning_rate_at(o, 350), 1.707107, 1e-6);  // 1 + cos(pi/4)
  EXPECT_NEAR(learning_rate_at(o, 600), 1.0, 1e-12);
  EXPECT_EQ(learning_rate_at(o, 1100), 0.0);
  EXPECT_EQ(learning_rate_at(o, 5000), 0.0);
}

// Schedules would not be what their names mean elsewhere.
TEST(LearningRateSchedule, GivesTheRatesOfOtherImplementations) {
  std::ifstream file(DDL_GOLDEN_DIR "/optimizers.json");
  const auto golden = nlohmann::json::parse(file);
  for (const auto& wanted : golden["schedules"]) {
    SCOPED_TRACE(wanted["flags"].dump());
    Options options;
    for (const auto& [name, value] : wanted["flags"].items())
      nmt::assign(*nmt::find_flag(name), value.get<std::string>(), options);
    for (std::size_t i = 0; i < wanted["steps"].size(); ++i) {
      const double rate = wanted["rates"][i];
      EXPECT_NEAR(learning_rate_at(options, wanted["steps"][i]), rate, 1e-12 * rate)
          << "step " << wanted["steps"][i];
    }
  }
}

// Training with a schedule counted in samples would end in the middle of the decay, or long after it.
TEST(LearningRateSchedule, CountedInSamplesItEndsWithTheJob) {
  Options o = schedule(DecayScheme::luong5, 3000, 400);
  EXPECT_EQ(nmt::single_worker_schedule(o, 4).num_train_steps, 3000);
  EXPECT_EQ(nmt::warmup_updates(o, 4), 400u);
  o.lr_schedule_unit = ddl::ScheduleUnit::samples;
  const Options one_worker = nmt::single_worker_schedule(o, 4);
  EXPECT_EQ(one_worker.num_train_steps, 12000);
  EXPECT_EQ(one_worker.warmup_steps, 400);
  EXPECT_EQ(nmt::warmup_updates(o, 4), 100u);
  EXPECT_EQ(nmt::warmup_updates(o, 3), 134u);
  // The rates of the job's updates 99, 100, 1799, 1800 and 2999.
  EXPECT_LT(learning_rate_at(one_worker, 99 * 4), 2.0);
  EXPECT_EQ(learning_rate_at(one_worker, 100 * 4), 2.0);
  EXPECT_EQ(learning_rate_at(one_worker, 1799 * 4), 2.0);
  EXPECT_EQ(learning_rate_at(one_worker, 1800 * 4), 1.0);
  EXPECT_EQ(learning_rate_at(one_worker, 2999 * 4), 0.125);
  o.num_train_steps = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(nmt::single_worker_schedule(o, 4).num_train_steps, o.num_train_steps);
}

// A valid warm-up would be refused as too long, or the cosine would be silently omitted.
TEST(LearningRateSchedule, CountedInSamplesWarmupMayBeLongerThanTheJob) {
  Options o = schedule(DecayScheme::cosine, 100, 399);
  o.lr_schedule_unit = ddl::ScheduleUnit::samples;
  EXPECT_NO_THROW(nmt::single_worker_schedule(o, 4));
  const std::string text =
      ddl::test::message_of(ddl::ErrorCode::invalid_argument, [&] { nmt::single_worker_schedule(o, 3); });
  for (const char* part : {"--warmup_steps=399", "below 300", "--num_train_steps=100", "3 ranks"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
  }
}

}  // namespace
