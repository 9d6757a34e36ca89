// The search for a good value of a flag.

#include "nmt_example/training/tuning.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>

#include "nmt_example/training/trainer.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;
constexpr double diverged = std::numeric_limits<double>::infinity();
using Values = std::vector<std::string>;
using Numbers = std::vector<std::size_t>;

TunedFlag tuned(const std::string& text, int candidates = 5) {
  Options options;
  options.learning_rate = 0.002;
  options.tune = text;
  options.candidates = candidates;
  return tuned_flag(options);
}

// Other values than the asked ones would be tried.
TEST(TunedFlag, HasTheValuesThatAreAskedFor) {
  EXPECT_EQ(tuned("").flag->name, "learning_rate");
  EXPECT_EQ(tuned("").values, (Values{"0.0005", "0.001", "0.002", "0.004", "0.008"}));
  EXPECT_EQ(tuned("dropout=0.1:0.5", 3).values, (Values{"0.1", "0.3", "0.5"}));
  EXPECT_EQ(tuned("learning_rate=1:100:log", 3).values, (Values{"1", "10", "100"}));
  EXPECT_EQ(tuned("num_units=8:10", 7).values, (Values{"8", "9", "10"})) << "none twice";
  EXPECT_EQ(tuned("ema_decay=0,0.9,0.999").values, (Values{"0", "0.9", "0.999"}));
}

// A search would end after hours with a message about its last value, or compare what is equal.
TEST(TunedFlag, RefusesWhatIsNoSearch) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string> parts) {
    ddl::test::expect_error(ddl::ErrorCode::invalid_argument, parts, [&] { tuned(text); });
  };
  refused("dropout", {"--tune=dropout", "there is no \"=\"", "FLAG=LOW:HIGH"});
  refused("drop=1:2", {"there is no flag --drop"});
  refused("optimizer=sgd,adam", {"--optimizer is not a number"});
  refused("residual=true,false", {"--residual is not a number"});
  refused("beam_width=1:5", {"--beam_width is not a number that training depends on"});
  refused("threads=1:5", {"--threads is not a number that training depends on"});
  refused("dropout=0.1:x", {"\"x\" is no number"});
  refused("dropout=0.5:0.1", {"0.5 is not below 0.1"});
  refused("dropout=0:0.1:log", {"cannot start at 0"});
  refused("dropout=0:0.1:lin", {"no range"});
  refused("dropout=0.1,2", {"--dropout=2", "below 1"});
  refused("dropout=0.1,", {"--dropout=\"\""});
  refused("dropout=0.1,0.10", {"--dropout=0.1", "at least two values"});
}

// The worse half would go on, or a search would never end.
TEST(Tuning, TheBetterHalfGoesOn) {
  Tuning tuning{"dropout", 10, {}, "{}"};
  for (const double perplexity : {5.0, diverged, 3.0, 5.0, 2.0, std::nan(""), 9.0})
    tuning.candidates.push_back({"x", {perplexity}});
  EXPECT_EQ(tuning.rungs(), 3U);
  EXPECT_EQ(tuning.last_step(2), 40);
  EXPECT_EQ(tuning.taking_part(0), (Numbers{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(tuning.taking_part(1), (Numbers{0, 2, 3, 4}));
  for (const std::size_t i : tuning.taking_part(1))
    tuning.candidates[i].perplexities.push_back(i == 3 ? 1.0 : diverged);
  EXPECT_EQ(tuning.taking_part(2), (Numbers{3}));
  const Tuning same = Tuning::from_json(tuning.to_json());
  EXPECT_EQ(same.taking_part(2), (Numbers{3}));
  EXPECT_EQ(same.to_json(), tuning.to_json());
  EXPECT_THROW(Tuning::from_json("{"), ddl::Error);
}

class TuningRun : public testing::Test {
 protected:
  ParsedOptions options(const std::string& out_dir) {
    ParsedOptions parsed;
    Options& o = parsed.options;
    o.builtin_corpus = 200;
    o.vocab_size = 120;
    o.num_units = 16;
    o.optimizer = OptimizerKind::adam;
    o.decay_scheme = DecayScheme::cosine;
    o.num_train_steps = 100;
    o.batch_size = 8;
    o.threads = 1;
    o.tune = "learning_rate=0.0001,0.003,0.01,1e30";
    o.rung_steps = 3;
    o.out_dir = directory_.file(out_dir);
    return parsed;
  }

  static std::string run(int ranks, const ParsedOptions& parsed, Tuning& found) {
    std::ostringstream out;
    ddl::run_in_process(ranks, [&](ddl::Context& context) {
      std::ostringstream nowhere;
      const auto result = tune(context, parsed, context.is_root() ? out : nowhere);
      if (context.is_root()) found = result.value();
    });
    return out.str();
  }

  ddl::test::TemporaryDirectory directory_;
};

// Candidates would start again in each rung, or with another schedule than the run that follows; a search
// that was interrupted would find something else; or losers would fill the disk.
TEST_F(TuningRun, GoesOnFromCheckpointsAndFromWhereItWas) {
  Tuning whole;
  const ParsedOptions parsed = options("whole");
  const std::string output = run(2, parsed, whole);
  ddl::test::expect_parts(output,
                          {"4 values, 2 rungs", "rung 1 of 2, step 3: --learning_rate=0.0001: dev ppl",
                           "--learning_rate=1e+30: diverged", "rung 2 of 2, step 6"});
  ASSERT_EQ(whole.candidates.size(), 4U);
  EXPECT_EQ(whole.candidates[0].perplexities.size(), 1U);
  EXPECT_EQ(whole.candidates[2].perplexities.size(), 2U);
  EXPECT_EQ(whole.candidates[3].perplexities, (std::vector<double>{diverged}));
  const Numbers best = whole.taking_part(2);
  ASSERT_EQ(best.size(), 1U);

  const fs::path out_dir = parsed.options.out_dir;
  for (std::size_t i = 0; i < 4; ++i) {
    const fs::path of_one = out_dir / ("learning_rate=" + whole.candidates[i].value);
    EXPECT_TRUE(fs::exists(of_one / "log.jsonl"));
    EXPECT_EQ(fs::exists(of_one / "step-0000000006"), i == best.front());
    EXPECT_FALSE(fs::exists(of_one / "step-0000000003"));
  }

  // A run that is not interrupted has the same perplexity.
  ParsedOptions alone = options("alone");
  alone.options.learning_rate = 0.01;
  ddl::run_in_process(2, [&](ddl::Context& context) {
    std::ostringstream out;
    EXPECT_EQ(train_part(context, alone, 6, nullptr, out), whole.candidates[2].perplexities[1]);
    EXPECT_EQ(out.str().find("bleu"), std::string::npos);
  });

  Tuning again;
  EXPECT_EQ(run(2, parsed, again).find("rung 1"), std::string::npos) << "a finished rung is repeated";
  EXPECT_EQ(again.to_json(), whole.to_json());
  // As if it had been killed when the second rung's first candidate was trained, but not noted.
  Tuning half = whole;
  half.candidates[1].perplexities.resize(1);
  half.candidates[2].perplexities.resize(1);
  directory_.write("whole/tune.json", half.to_json());
  const std::string rest = run(2, parsed, again);
  EXPECT_EQ(rest.find("rung 1"), std::string::npos) << rest;
  EXPECT_EQ(again.to_json(), whole.to_json());

  ParsedOptions other = parsed;
  other.options.dropout = 0.4;
  other.options.rung_steps = 4;
  ddl::run_in_process(2, [&](ddl::Context& context) {
    std::ostringstream out;
    const ddl::Error error = ddl::test::error_of([&] { tune(context, other, out); });
    EXPECT_EQ(error.code(), ddl::ErrorCode::mismatch);
    ddl::test::expect_parts(error.what(),
                            {"tune.json", "--dropout was 0.2, and is 0.4", "--rung_steps was 3"});
  });
}

// The rungs' steps would be said, and fewer trained.
TEST_F(TuningRun, RefusesATrainingThatEndsBeforeTheLastRung) {
  ParsedOptions parsed = options("short");
  parsed.options.num_train_steps = 5;
  ddl::run_in_process(2, [&](ddl::Context& context) {
    std::ostringstream out;
    const ddl::Error error = ddl::test::error_of([&] { tune(context, parsed, out); });
    EXPECT_EQ(error.code(), ddl::ErrorCode::invalid_argument);
    ddl::test::expect_parts(error.what(), {"--num_train_steps: found 5", "at least 6", "2 rungs"});
  });
}

}  // namespace
}  // namespace nmt
