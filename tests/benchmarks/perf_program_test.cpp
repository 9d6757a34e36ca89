// The command lines of all_reduce_perf and the other programs named after collectives.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/temporary_directory.hpp"

namespace {

struct Outcome {
  int status = -1;
  std::string text;  // standard output and standard error
};

Outcome run(const std::string& command) {
  Outcome outcome;
  const std::string with_both = command + " 2>&1 </dev/null";
  std::FILE* pipe = popen(with_both.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> part{};
  while (const std::size_t size = std::fread(part.data(), 1, part.size(), pipe)) {
    outcome.text.append(part.data(), size);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

std::string program(const std::string& collective) {
  return fmt::format("{}/{}_perf", DDL_TEST_PROGRAMS, collective);
}

class PerfProgram : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] std::vector<nlohmann::json> rows() const {
    std::vector<nlohmann::json> result;
    std::ifstream file(json_);
    std::string line;
    while (std::getline(file, line)) result.push_back(nlohmann::json::parse(line));
    return result;
  }

  const ddl::test::TemporaryDirectory directory_;
  const std::filesystem::path json_ = directory_.path() / "rows.jsonl";
};

TEST_P(PerfProgram, MeasuresThreadsAndWritesALineForEachSizeAndPlace) {
  const Outcome outcome = run(fmt::format(
      "{} --in-process 3 -b 8 -e 128K -f 64 -n 2 -w 1 -d float --registered 0 --predict --json {}",
      program(GetParam()), json_.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("# Out of bounds values : 0 OK"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("# Avg bus bandwidth"), std::string::npos) << outcome.text;
  const std::vector<nlohmann::json> lines = rows();
  ASSERT_EQ(lines.size(), 6U);  // 8, 512, 32K
  for (const nlohmann::json& line : lines) {
    EXPECT_EQ(line.at("collective"), GetParam());
    EXPECT_EQ(line.at("type"), "f32");
    EXPECT_EQ(line.at("ranks"), 3);
    EXPECT_EQ(line.at("hosts"), 1);
    EXPECT_EQ(line.at("placement"), "host");
    EXPECT_EQ(line.at("wrong"), 0);
    EXPECT_EQ(line.at("registered"), false);
    EXPECT_GE(line.at("time_us").get<double>(), line.at("min_us").get<double>());
    EXPECT_GT(line.at("min_us").get<double>(), 0);
    EXPECT_GT(line.at("machine").at("cores"), 0);
    if (line.at("bytes") == 0) continue;
    EXPECT_NEAR(line.at("algbw").get<double>(),
                line.at("bytes").get<double>() / line.at("time_us").get<double>() / 1e3, 1e-9);
    EXPECT_EQ(line.at("plan_hash").get<std::string>().size(), 16U);
    EXPECT_GT(line.at("predicted_us").get<double>(), 0);
    EXPECT_GT(line.at("simulated_us").get<double>(), 0);
  }
}

TEST_P(PerfProgram, RefusesBadFlagsWithStatus2) {
  for (const char* arguments : {"--in-process 2 -b 8x", "--in-process 2 --itres 3", "-f 1", "--in-process"}) {
    const Outcome outcome = run(program(GetParam()) + " " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments << ": " << outcome.text;
    EXPECT_FALSE(outcome.text.empty()) << arguments;
  }
}

TEST_P(PerfProgram, HelpNamesTheFlags) {
  const Outcome outcome = run(program(GetParam()) + " --help");
  EXPECT_EQ(outcome.status, 0);
  for (const char* words : {"-b, --minbytes", "--registered", "--baseline", "median"}) {
    EXPECT_NE(outcome.text.find(words), std::string::npos) << words;
  }
}

TEST_P(PerfProgram, SaysThatAFileCannotBeWritten) {
  const Outcome outcome =
      run(program(GetParam()) + " --in-process 2 -b 8 -e 8 -n 1 --json /nowhere/at/all.jsonl");
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_NE(outcome.text.find("--json /nowhere/at/all.jsonl"), std::string::npos) << outcome.text;
}

INSTANTIATE_TEST_SUITE_P(All, PerfProgram,
                         testing::Values("all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter"),
                         [](const auto& instance) { return instance.param; });

using AllReducePerf = PerfProgram;

TEST_F(AllReducePerf, ComparesThreadsWithWhatMemoryAllows) {
  for (const std::string baseline : {"threads", "loop"}) {
    const Outcome outcome =
        run(fmt::format("{} --in-process 4 -b 64K -e 64K -n 3 -w 1 --baseline {} --json {}",
                        program("all_reduce"), baseline, json_.string()));
    ASSERT_EQ(outcome.status, 0) << outcome.text;
    const nlohmann::json last = rows().back();
    EXPECT_EQ(last.at("baseline"), baseline);
    EXPECT_NEAR(last.at("ratio").get<double>(),
                last.at("baseline_us").get<double>() / last.at("time_us").get<double>(), 1e-9);
  }
}

TEST_F(AllReducePerf, TakesAllTypesAndOps) {
  const Outcome outcome =
      run(program("all_reduce") + " --in-process 3 -b 4000 -e 4000 -n 1 -w 0 -o all -d all --json " +
          json_.string());
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(rows().size(), 7U * 5U * 2U);
}

#ifdef DDL_TEST_MPIRUN
TEST_P(PerfProgram, MeasuresProcessesBesideMpi) {
  const Outcome outcome = run(fmt::format(
      "{} --oversubscribe --bind-to none -n 2 {} -b 8 -e 128K -f 128 -n 3 -w 1 --baseline mpi --json {}",
      DDL_TEST_MPIRUN, program(GetParam()), json_.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const std::vector<nlohmann::json> lines = rows();
  ASSERT_EQ(lines.size(), 6U);  // 8, 1K, 128K
  for (const nlohmann::json& line : lines) {
    EXPECT_EQ(line.at("ranks"), 2);
    EXPECT_EQ(line.at("wrong"), 0);
    EXPECT_EQ(line.at("baseline"), "mpi");
    EXPECT_GT(line.at("ratio").get<double>(), 0);
  }
}

// Users would get a message from each rank, and scripts a wrong exit status.
TEST_F(AllReducePerf, RefusesBadFlagsOnceUnderMpirun) {
  for (const std::string arguments : {"--place left", "--baseline threads"}) {
    const Outcome outcome = run(fmt::format("{} --oversubscribe --bind-to none -n 2 {} {}", DDL_TEST_MPIRUN,
                                            program("all_reduce"), arguments));
    EXPECT_EQ(outcome.status, 2) << outcome.text;
    const std::size_t first = outcome.text.find("expected");
    ASSERT_NE(first, std::string::npos) << outcome.text;
    EXPECT_EQ(outcome.text.find("expected", first + 1), std::string::npos) << outcome.text;
  }
  const Outcome root = run(
      fmt::format("{} --oversubscribe --bind-to none -n 2 {} -r 2", DDL_TEST_MPIRUN, program("broadcast")));
  EXPECT_EQ(root.status, 2) << root.text;
}
#endif

}  // namespace
