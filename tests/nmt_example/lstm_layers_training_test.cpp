// Whole runs on a CUDA device, with each value of --rnn.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "nmt_example/backend_test_support.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/small_training.hpp"
#include "nmt_example/training/trainer.hpp"
#include "support/temporary_directory.hpp"

namespace nmt::test {
namespace {

namespace fs = std::filesystem;

class LstmLayersTraining : public testing::TestWithParam<LstmMethod> {
 protected:
  void SetUp() override {
    const std::string why_not = backends_under_test().front().why_not();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    const ParallelText text = number_corpus(CorpusSplit::train, 60, 3);
    for (const auto& [name, lines] :
         {std::pair("train.en", &text.source), std::pair("train.de", &text.target)}) {
      std::ofstream file(path(name));
      for (const std::string& line : *lines) file << line << '\n';
    }
  }

  [[nodiscard]] fs::path path(const std::string& name) const { return directory_.path() / name; }

  /// Trains in the directory `name`; returns what is printed.
  [[nodiscard]] std::string run(const std::string& name) const {
    ParsedOptions parsed;
    parsed.options = small_training_options();
    for (const Flag& flag : all_flags()) {
      if (flag.name != "override_loaded_hparams") parsed.explicitly_set.emplace_back(flag.name);
    }
    Options& o = parsed.options;
    o.device = DeviceKind::cuda;
    o.rnn = GetParam();
    o.src = "en";
    o.tgt = "de";
    o.train_prefix = path("train").string();
    o.vocab_size = 60;
    o.src_max_len = o.tgt_max_len = 4;
    o.num_units = 8;
    o.batch_size = 4;
    o.num_train_steps = 4;
    o.steps_per_eval = 2;
    o.num_keep_ckpts = 0;
    o.out_dir = path(name).string();
    o.log_jsonl = path(name + ".jsonl").string();
    std::ostringstream out;
    ddl::run_in_process(
        1, [&](ddl::Context& context) { train(context, parsed, out); }, quiet_ranks());
    return out.str();
  }

  [[nodiscard]] std::vector<double> losses(const std::string& name) const {
    std::ifstream file(path(name + ".jsonl"));
    std::vector<double> losses;
    for (std::string line; std::getline(file, line);)
      losses.push_back(nlohmann::json::parse(line).at("loss").get<double>());
    return losses;
  }

 private:
  ddl::test::TemporaryDirectory directory_;
};

// With auto, a run that is stopped and resumed would choose anew, and differ from one that never stopped.
TEST_P(LstmLayersTraining, ResumedRunHasTheBitsOfTheRunThatNeverStopped) {
  const std::string first = run("whole");
  const bool chooses = GetParam() == LstmMethod::automatic;
  EXPECT_EQ(first.find("LSTM layers by ") != std::string::npos, chooses) << first;
  const std::vector<double> whole = losses("whole");
  ASSERT_EQ(whole.size(), 4U);

  fs::create_directory(path("resumed"));
  fs::copy(path("whole") / "step-0000000002", path("resumed") / "step-0000000002",
           fs::copy_options::recursive);
  fs::copy_file(path("whole.jsonl"), path("resumed.jsonl"));
  const std::string second = run("resumed");
  EXPECT_NE(second.find("going on from step 2\n"), std::string::npos) << second;
  EXPECT_EQ(second.find("as in the checkpoint") != std::string::npos, chooses) << second;
  EXPECT_EQ(losses("resumed"), whole);
}

// A user would not see that the host holds up the device.
TEST_P(LstmLayersTraining, SaysHowLongTheHostTakes) {
  const std::string printed = run("timed");
  EXPECT_NE(printed.find("the host took "), std::string::npos) << printed;
  EXPECT_NE(printed.find(" ms to queue a step\n"), std::string::npos) << printed;
}

INSTANTIATE_TEST_SUITE_P(Methods, LstmLayersTraining,
                         testing::Values(LstmMethod::automatic, LstmMethod::loop, LstmMethod::wavefront,
                                         LstmMethod::cudnn),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace nmt::test
