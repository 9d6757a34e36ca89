// The time to make a context, beyond MPI_Init; see --help.

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "ddl/ddl.hpp"
#include "ddl/tools/command_line.hpp"

namespace {

constexpr std::string_view help = R"(start_up_time: the time to make a context, beyond MPI_Init

  mpirun -n 16 start_up_time [--json FILE]

Calls MPI_Init and, after an MPI barrier, measures ddl::Context::from_environment and the following first
all-reduce. Prints the slowest rank's times. --json appends a line.
)";

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double greatest(double value) {
  double result = 0;
  MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return result;
}

void measure(const std::string& json) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  ddl::Context context = ddl::Context::from_environment();
  const double context_s = seconds_since(start);
  double value = 1;
  context.communicator().all_reduce(std::span(&value, 1));
  const double both_s = seconds_since(start);
  const double most_context_s = greatest(context_s);
  const double most_both_s = greatest(both_s);
  if (!context.is_root()) return;
  fmt::print("{} ranks on {} hosts: context {:.3f} s, with the first all-reduce {:.3f} s\n", context.size(),
             context.hosts(), most_context_s, most_both_s);
  if (json.empty()) return;
  std::ofstream file(json, std::ios::app);
  file << fmt::format(
      "{{\"benchmark\":\"start_up_time\",\"ranks\":{},\"hosts\":{},\"context_s\":{},"
      "\"first_all_reduce_s\":{}}}\n",
      context.size(), context.hosts(), most_context_s, most_both_s);
  if (!file.flush()) {
    throw ddl::Error(ddl::ErrorCode::io, fmt::format("--json {}: cannot write", json));
  }
}

}  // namespace

int main(int count, char** arguments) {
  return ddl::tools::main_of(
      "start_up_time", help, count, arguments, [&](const std::vector<std::string>& words) {
        std::string json;
        ddl::tools::parse_flags(words, std::array{ddl::tools::Flag{"--json", true}}).read("--json", json);
        MPI_Init(&count, &arguments);
        try {
          measure(json);
        } catch (const ddl::Error& error) {
          fmt::print(stderr, "start_up_time: {}\n", error.what());
          MPI_Abort(MPI_COMM_WORLD, 1);
        }
        MPI_Finalize();
        return 0;
      });
}
