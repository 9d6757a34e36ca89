#include "nmt_example/training/progress.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace {

using nmt::Progress;
using nmt::ProgressSettings;
using nmt::StepReport;

StepReport report(std::int64_t step, double loss = std::log(20.0)) {
  return {.step = step,
          .learning_rate = 0.001,
          .loss_sum = 100 * loss,
          .target_tokens = 100,
          .words = 250,
          .gradient_norm = 14.2,
          .seconds = 0.125};
}

class ProgressLog : public testing::Test {
 protected:
  void run(std::int64_t first, std::int64_t last, double loss = 1.0) {
    std::ostringstream out;
    Progress progress({.start_step = first - 1, .end = last, .logs = {.jsonl = path_.string()}}, out, false);
    for (std::int64_t step = first; step <= last; ++step) progress.step(report(step, loss));
  }
  [[nodiscard]] std::vector<nlohmann::json> lines() const {
    std::ifstream file(path_);
    std::vector<nlohmann::json> result;
    for (std::string line; std::getline(file, line);) result.push_back(nlohmann::json::parse(line));
    return result;
  }

  ddl::test::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "log.jsonl";
};

TEST(Progress, LineInTensorflowNmtsManner) {
  std::ostringstream out;
  Progress progress({.end = 202, .steps_per_stats = 2}, out, false);
  progress.step(report(1, std::log(10.0)));
  EXPECT_EQ(out.str(), "");
  progress.step(report(2, std::log(40.0)));
  EXPECT_EQ(out.str(), "  step 2 lr 0.001 step-time 0.12s wps 2.00K ppl 20.00 gN 14.20, eta 25s\n");
}

TEST(Progress, PerplexityIsOfTheStepsSinceTheLineBefore) {
  std::ostringstream out;
  Progress progress({.end = 10, .steps_per_stats = 1}, out, false);
  progress.step(report(1, std::log(1000.0)));
  progress.score("bleu", 12.345);
  progress.score("rouge", 30);
  progress.score("bleu", 23.456);
  out.str("");
  progress.step(report(2, std::log(10.0)));
  EXPECT_NE(out.str().find(" ppl 10.00 "), std::string::npos) << out.str();
  EXPECT_NE(out.str().find(" gN 14.20 bleu 23.46, rouge 30.00, eta"), std::string::npos) << out.str();
}

// The last steps would get no line if the run's length is no multiple of steps_per_stats.
TEST(Progress, LastStepGetsALine) {
  std::ostringstream out;
  Progress progress({.end = 3, .steps_per_stats = 2}, out, false);
  for (int step = 1; step <= 3; ++step) progress.step(report(step));
  EXPECT_NE(out.str().find("step 3 "), std::string::npos);
}

// Log files would be full of control characters.
TEST(Progress, BarOnlyOnATerminal) {
  std::ostringstream file;
  std::ostringstream terminal;
  Progress to_file({.end = 100, .steps_per_stats = 50}, file, false);
  Progress to_terminal({.end = 100, .steps_per_stats = 50}, terminal, true);
  for (int step = 1; step <= 49; ++step) {
    to_file.step(report(step));
    to_terminal.step(report(step));
  }
  EXPECT_EQ(file.str(), "");
  EXPECT_NE(terminal.str().find("step 49/100"), std::string::npos);
  terminal.str("");
  to_terminal.note("saved");
  EXPECT_EQ(terminal.str(), "\r\x1b[Ksaved\n");
}

TEST(Progress, BarIsErasedAtTheEnd) {
  std::ostringstream terminal;
  {
    Progress progress({.end = 9}, terminal, true);
    progress.step(report(1));
  }
  EXPECT_TRUE(terminal.str().ends_with("\r\x1b[K"));
}

// `mpirun ... > log` would be full of bars, because Open MPI gives ranks a pseudo-terminal. ctest reads the
// output from a pipe, so under mpirun (progress_mpi_test) there is no terminal.
TEST(Terminal, IsMpirunsAndNotThePseudoTerminalOfARank) {
  const bool under_mpirun = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  EXPECT_EQ(nmt::standard_output_is_terminal(), !under_mpirun && ::isatty(STDOUT_FILENO) != 0);
}

TEST(Progress, Durations) {
  EXPECT_EQ(nmt::duration_text(0), "0s");
  EXPECT_EQ(nmt::duration_text(59.4), "59s");
  EXPECT_EQ(nmt::duration_text(59.6), "1m00s");
  EXPECT_EQ(nmt::duration_text(192), "3m12s");
  EXPECT_EQ(nmt::duration_text(7500), "2h05m");
  EXPECT_EQ(nmt::duration_text(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST_F(ProgressLog, OneObjectPerStep) {
  run(1, 3, 1.0 / 3.0);
  const auto log = lines();
  ASSERT_EQ(log.size(), 3U);
  EXPECT_EQ(log[2]["step"], 3);
  EXPECT_NEAR(log[2]["loss"].get<double>(), 1.0 / 3.0, 1e-9);
  EXPECT_NEAR(log[2]["ppl"].get<double>(), std::exp(1.0 / 3.0), 1e-8);
  EXPECT_DOUBLE_EQ(log[2]["lr"].get<double>(), 0.001);
  EXPECT_DOUBLE_EQ(log[2]["grad_norm"].get<double>(), 14.2);
  EXPECT_EQ(log[2]["words"], 250);
  EXPECT_DOUBLE_EQ(log[2]["step_ms"].get<double>(), 125);
  EXPECT_DOUBLE_EQ(log[2]["words_per_s"].get<double>(), 2000);
}

// JSON readers would reject the log from the step on at which training diverged.
TEST_F(ProgressLog, ValuesThatAreNotFiniteAreNull) {
  run(1, 1, std::numeric_limits<double>::quiet_NaN());
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_TRUE(lines()[0]["loss"].is_null());
}

TEST_F(ProgressLog, ANewRunOverwrites) {
  run(1, 5);
  run(1, 2);
  EXPECT_EQ(lines().size(), 2U);
}

// After a resume the log would contain some steps twice.
TEST_F(ProgressLog, AResumedRunContinuesAfterItsCheckpoint) {
  run(1, 5, 1.0);
  std::ofstream(path_, std::ios::app) << R"({"step": 6, "lo)";
  run(4, 6, 2.0);
  const auto log = lines();
  ASSERT_EQ(log.size(), 6U);
  for (std::size_t i = 0; i < log.size(); ++i) {
    EXPECT_EQ(log[i]["step"], i + 1);
    EXPECT_EQ(log[i]["loss"], i < 3 ? 1.0 : 2.0);
  }
}

TEST_F(ProgressLog, ResumeKeepsAnUnfinishedLineOut) {
  std::ofstream(path_) << "{\"step\": 1}\n{\"step\": 2";
  run(3, 3);
  EXPECT_EQ(lines().size(), 2U);
}

TEST_F(ProgressLog, ResumeWithoutALogStartsOne) {
  run(8, 9);
  EXPECT_EQ(lines().size(), 2U);
}

// A wrong file name on resume would truncate another file.
TEST_F(ProgressLog, ResumeRefusesAFileThatIsNoLog) {
  std::ofstream(path_) << "dear diary\n";
  EXPECT_THROW(run(4, 6), ddl::Error);
  std::ifstream file(path_);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "dear diary");
}

TEST(ProgressErrors, FullDiskAndMissingDirectory) {
  std::ostringstream out;
  Progress full({.end = 1, .logs = {.jsonl = "/dev/full"}}, out, false);
  ddl::test::expect_error(ddl::ErrorCode::io, {"/dev/full"}, [&] { full.step(report(1)); });
  const ProgressSettings nowhere{.end = 1, .logs = {.jsonl = "/nonexistent/log"}};
  EXPECT_THROW(Progress(nowhere, out, false), ddl::Error);
}

}  // namespace
