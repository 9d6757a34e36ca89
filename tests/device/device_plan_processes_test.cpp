// The printed plan is the one that runs, for ranks that are processes with their own devices: the exchange
// inside hosts, and the network or the hosts' memory between them. ddl-plan prints the same plan for the
// topology that the job writes.
//   device_plan_processes_test JOB RANK   one rank of a job; used by the test itself

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "device/device_plan_jobs.hpp"
#include "support/temporary_directory.hpp"

extern char** environ;

namespace ddl {
namespace {

/// "2x4:network": two hosts of four ranks.
test::PlanJob job_of(const std::string& text) {
  test::PlanJob job{text.at(0) - '0', text.at(2) - '0', {test::by_exchange, test::by_network}};
  if (text.ends_with("host_memory")) job.dimensions.back() = test::by_host_memory;
  job.chunks = 2;
  return job;
}

struct Asked {
  topology::Collective collective;
  std::size_t bytes;  // a size class, for which jobs plan
};
constexpr Asked asked[] = {{topology::Collective::all_reduce, 4096},
                           {topology::Collective::all_reduce, std::size_t{1} << 20},
                           {topology::Collective::all_reduce, std::size_t{16} << 20},
                           {topology::Collective::reduce_scatter, std::size_t{1} << 20},
                           {topology::Collective::all_gather, std::size_t{4} << 20},
                           {topology::Collective::broadcast, std::size_t{8} << 20},
                           {topology::Collective::reduce, std::size_t{1} << 18}};

/// Makes the job log its plans: those for hosts by using them, those for devices by requesting them.
int log_plans(const std::string& text, int rank) {
  const test::PlanJob job = job_of(text);
  ContextOptions options = ContextOptions::from_environment();
  // Round-robin, so that "as placed" and "by host" are different orders.
  options.host_id = fmt::format("host{}", rank % job.hosts);
  options.debug_level = 1;
  Context context = Context::from_environment(options);
  Communicator& all = context.communicator();
  const DeviceCommunicator device(context);
  for (const auto& [collective, bytes] : asked) {
    std::vector<float> in(bytes / sizeof(float)), out(bytes / sizeof(float));
    const std::size_t count = topology::has_pieces(collective) ? in.size() / job.ranks() : in.size();
    switch (collective) {
      case topology::Collective::all_reduce:
        all.all_reduce(in.data(), out.data(), count, DataType::f32, ReduceOp::sum);
        break;
      case topology::Collective::reduce_scatter:
        all.reduce_scatter(in.data(), out.data(), count, DataType::f32, ReduceOp::sum);
        break;
      case topology::Collective::all_gather:
        all.all_gather(in.data(), out.data(), count, DataType::f32);
        break;
      case topology::Collective::broadcast:
        all.broadcast(in.data(), out.data(), count, DataType::f32, 0);
        break;
      default:
        all.reduce(in.data(), out.data(), count, DataType::f32, ReduceOp::sum, 0);
    }
    static_cast<void>(device.plan(collective, bytes, DataType::f32));
  }
  return 0;
}

int run_rank(const std::string& text, int rank) {
  if (text.ends_with("log")) return log_plans(text, rank);
  const test::PlanJob job = job_of(text);
  ContextOptions options = ContextOptions::from_environment();
  options.plans = test::given_plans(job);
  options.host_id = job.host_of(rank);
  std::map<topology::Collective, std::uint64_t> printed;
  {
    Context context = Context::from_environment(options);
    printed = test::run_plan_calls(context, job);
  }
  if (rank == 0) test::expect_executed(options.timeline, job, printed);
  return testing::Test::HasFailure() ? 1 : 0;
}

/// Runs a job; rank 0's standard error goes to the file "log".
void run_job(const std::string& text, const std::filesystem::path& directory) {
  const int ranks = job_of(text).ranks();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string number = std::to_string(rank);
    const char* arguments[] = {"device_plan_processes_test", text.c_str(), number.c_str(), nullptr};
    setenv("DDL_SOCKET", fmt::format("@ddl-plans-{}", getpid()).c_str(), 1);
    setenv("DDL_TIMELINE", (directory / "trace.json").c_str(), 1);
    setenv("DDL_SAVE_TOPOLOGY", (directory / "job").c_str(), 1);
    setenv("RANK", number.c_str(), 1);
    setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
    pid_t process = 0;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    if (text.ends_with("log") && rank == 0) {
      posix_spawn_file_actions_addopen(&files, STDERR_FILENO, (directory / "log").c_str(), O_WRONLY | O_CREAT,
                                       0600);
    }
    ASSERT_EQ(
        posix_spawn(&process, "/proc/self/exe", &files, nullptr, const_cast<char**>(arguments), environ), 0);
    posix_spawn_file_actions_destroy(&files);
    processes.push_back(process);
  }
  for (const pid_t process : processes) {
    int status = 0;
    EXPECT_EQ(waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0) << text;
  }
}

class DevicePlanProcesses : public testing::TestWithParam<std::string> {};

TEST_P(DevicePlanProcesses, TheExchangeInsideHostsAndAnotherCarrierBetweenThem) {
  const test::TemporaryDirectory directory;
  run_job(GetParam(), directory.path());
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(DevicePlanLines, AreThoseThatDdlPlanPrintsForTheJobsTopology) {
  const test::TemporaryDirectory directory;
  run_job("2x2:log", directory.path());
  const std::string log = text_of(directory.path() / "log");
  for (const bool is_on_devices : {false, true}) {
    for (const auto& [collective, bytes] : asked) {
      const std::filesystem::path printed = directory.path() / "printed";
      const std::string command =
          fmt::format("{} --topology {}/job{}.json --collective {} --bytes {} > {}", DDL_PLAN_PROGRAM,
                      directory.path().string(), is_on_devices ? ".devices" : "", to_string(collective),
                      bytes, printed.string());
      ASSERT_EQ(std::system(command.c_str()), 0) << command;
      const std::string text = text_of(printed);
      const std::size_t begin = text.find(fmt::format("{} ", to_string(collective)));
      ASSERT_NE(begin, std::string::npos) << text;
      const std::string line = text.substr(begin, text.find('\n', begin) - begin);
      EXPECT_NE(log.find(fmt::format("{}: {}\n", is_on_devices ? "plan on devices" : "plan", line)),
                std::string::npos)
          << line << "\nis not in\n"
          << log;
    }
  }
}

std::vector<std::string> jobs() {
  std::vector<std::string> all;
  const char* const devices = std::getenv("EMULATED_CUDA");  // without UCX, the hosts' memory is used
  const bool has_ucx = devices == nullptr || std::string(devices).find("ucx=0") == std::string::npos;
  for (const int hosts : {2, 3, 4}) {
    for (const int each : {2, 3, 4}) {
      all.push_back(fmt::format("{}x{}:{}", hosts, each, has_ucx ? "network" : "host_memory"));
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(, DevicePlanProcesses, testing::ValuesIn(jobs()),
                         [](const auto& job) { return fmt::format("On{}", job.param.substr(0, 3)); });

}  // namespace
}  // namespace ddl

int main(int count, char** arguments) {
  setenv("DDL_DEADLINE", "60", 0);
  testing::InitGoogleTest(&count, arguments);
  if (count == 3) return ddl::run_rank(arguments[1], std::atoi(arguments[2]));
  return RUN_ALL_TESTS();
}
