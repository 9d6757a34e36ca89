// The CPU time of a rank that waits for a late peer; see --help.

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/tools/command_line.hpp"
#include "ddl/work.hpp"

namespace {

constexpr std::string_view help = R"(idle_wait: the CPU time of a rank that waits for a late peer

  mpirun -n 2 idle_wait [--seconds 5] [--json FILE]

The last rank arrives this many seconds late at a barrier, at an all-reduce, and at one that was started with
all_reduce_async. Prints for each the CPU time that another rank spent, in all threads of its process together, as a
share of one core: the largest of all ranks. --json appends a line for each.
)";

struct Options {
  double seconds = 5;
  std::string json;
};

Options parse(std::span<const std::string> arguments) {
  constexpr std::array flags = {ddl::tools::Flag{"--seconds", true}, ddl::tools::Flag{"--json", true}};
  const ddl::tools::CommandLine line = ddl::tools::parse_flags(arguments, flags);
  Options options;
  line.read("--seconds", options.seconds, 0.1, 300);
  line.read("--json", options.json);
  return options;
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// The largest share of a core that a waiting rank took.
double measure(ddl::Context& context, double seconds, const std::function<void()>& meet) {
  meet();  // excludes the cost of a first call
  context.communicator().barrier();
  const bool is_late = context.rank() == context.size() - 1;
  const auto start = std::chrono::steady_clock::now();
  const double before = cpu_seconds();
  if (is_late) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  meet();
  const double spent = cpu_seconds() - before;
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  double share = is_late ? 0 : spent / waited.count();
  context.communicator().all_reduce(std::span(&share, 1), ddl::ReduceOp::max);
  return share;
}

int run(ddl::Context& context, std::span<const std::string> arguments) {
  Options options;
  std::ofstream json;
  context.on_all_ranks("command line", [&] {
    options = parse(arguments);
    if (context.size() < 2) {
      throw ddl::tools::UsageError("found 1 rank, expected at least 2; start it with mpirun -n 2");
    }
    if (!options.json.empty() && context.is_root()) {
      json.open(options.json, std::ios::app);
      if (!json) throw ddl::Error(ddl::ErrorCode::io, fmt::format("--json {}: cannot write", options.json));
    }
  });
  ddl::Communicator& communicator = context.communicator();
  std::vector<float> values(1024);
  struct Way {
    std::string_view name;
    std::function<void()> meet;
  };
  const std::vector<Way> ways = {
      {"barrier", [&] { communicator.barrier(); }},
      {"all_reduce", [&] { communicator.all_reduce(std::span(values)); }},
      {"all_reduce_async", [&] { communicator.all_reduce_async(std::span(values)).wait(); }},
  };
  for (const Way& way : ways) {
    const double share = measure(context, options.seconds, way.meet);
    if (!context.is_root()) continue;
    fmt::print("{:<17} {:>6.2f}% of a core, {} ranks on {} hosts, {} s\n", way.name, share * 100,
               context.size(), context.hosts(), options.seconds);
    if (json.is_open()) {
      json << fmt::format(
          "{{\"benchmark\":\"idle_wait\",\"call\":\"{}\",\"ranks\":{},\"hosts\":{},\"seconds\":{},"
          "\"core_share\":{}}}\n",
          way.name, context.size(), context.hosts(), options.seconds, share);
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  return ddl::tools::main_of("idle_wait", help, count, arguments, [](const std::vector<std::string>& words) {
    return ddl::Context::run_from_environment([&](ddl::Context& context) { return run(context, words); });
  });
}
