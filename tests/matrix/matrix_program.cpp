// The correctness matrix: every collective, type, op, place, count, number of ranks, transport and family of
// plans, compared with a serial result. See --help.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/tools/command_line.hpp"
#include "matrix/case.hpp"
#include "matrix/mpi_session.hpp"
#include "matrix/plan_family.hpp"
#include "matrix/trial.hpp"

namespace {

using matrix::Case;
using matrix::Family;
using matrix::Transport;

constexpr std::string_view help = R"(matrix_program: collectives against a serial result

  matrix_program cover                      what concerns ranks that are threads
  mpirun -n N matrix_program cover          what concerns N processes
  matrix_program full --ranks N             all cases of N threads
  mpirun -n N matrix_program full           all cases of N processes
  matrix_program list                       the cover, case by case

cover: cases in which every two values of two parameters occur together. --table FILE appends a line for each
collective, transport, family and number of ranks: number of cases, number that failed. --only TEXT: only
cases whose description has the text. The exit status is 1 if a case fails.
)";

struct Options {
  bool full = false;
  bool list = false;
  int ranks = 0;
  std::string table;
  std::string only;
};

Options parse(std::span<const std::string> words) {
  constexpr std::array flags = {ddl::tools::Flag{"--table", true}, ddl::tools::Flag{"--only", true},
                                ddl::tools::Flag{"--ranks", true}};
  const ddl::tools::CommandLine line = ddl::tools::parse_command_line(words, flags);
  Options options;
  const std::string what = line.words.size() == 1 ? line.words.front() : "";
  options.full = what == "full";
  options.list = what == "list";
  if (!options.full && !options.list && what != "cover") {
    throw ddl::tools::UsageError(
        fmt::format("found '{}', expected cover, full or list", fmt::join(line.words, " ")));
  }
  line.read("--table", options.table);
  line.read("--only", options.only);
  line.read("--ranks", options.ranks, 1, matrix::most_ranks);
  return options;
}

/// Cases that one context runs.
struct Job {
  int ranks = 1;
  Transport transport = Transport::threads;
  Family family = Family::chosen;
  std::vector<Case> cases;
};

/// The jobs that the options select. `ranks` 0: any number.
std::vector<Job> jobs_of(const Options& options, int ranks, bool are_threads) {
  std::vector<Job> jobs;
  const auto add = [&](const Case& one) {
    if (!options.only.empty() && to_string(one).find(options.only) == std::string::npos) return;
    for (Job& job : jobs) {
      if (job.ranks == one.ranks && job.transport == one.transport && job.family == one.family) {
        job.cases.push_back(one);
        return;
      }
    }
    jobs.push_back({one.ranks, one.transport, one.family, {one}});
  };
  const auto concerns = [&](int case_ranks, Transport transport) {
    return (ranks == 0 || case_ranks == ranks) && (transport == Transport::threads) == are_threads;
  };
  if (!options.full) {
    for (const Case& one : matrix::pairwise_cases()) {
      if (concerns(one.ranks, one.transport)) add(one);
    }
    return jobs;
  }
  for (int n = 1; n <= matrix::most_ranks; ++n) {
    for (const Transport transport : matrix::all_transports()) {
      if (!concerns(n, transport)) continue;
      for (const Family family : matrix::all_families()) {
        for (const Case& one : matrix::all_cases(n, transport, family)) add(one);
      }
    }
  }
  return jobs;
}

/// Runs a job's cases in its context; returns for each case whether it failed on this rank.
std::vector<int> run_cases(const Job& job, ddl::Context& context) {
  std::vector<int> wrong;
  ddl::Communicator communicator = context.communicator();
  if (job.family == Family::split) communicator = communicator.split(0, -context.rank());
  for (const Case& one : job.cases) {
    std::string message;
    try {
      matrix::Trial trial(one, context, communicator);
      trial.run();
      message = trial.wrong();
    } catch (const ddl::Error& error) {
      throw ddl::Error(error.code(), fmt::format("{}: {}", to_string(one), error.what()));
    }
    if (!message.empty()) fmt::print(stderr, "rank {}: {}: {}\n", context.rank(), to_string(one), message);
    wrong.push_back(message.empty() ? 0 : 1);
  }
  return wrong;
}

class Summary {
 public:
  void add(const Job& job, const std::vector<int>& wrong) {
    for (std::size_t i = 0; i < job.cases.size(); ++i) {
      const Case& one = job.cases[i];
      auto& [cases, failed] = lines_[fmt::format("{} {} {} {}", to_string(one.collective),
                                                 to_string(one.transport), to_string(one.family), one.ranks)];
      ++cases;
      ++cases_;
      if (wrong[i] != 0) {
        ++failed;
        ++failed_;
      }
    }
  }

  /// Prints the totals; returns the exit status.
  int close(const Options& options) const {
    fmt::print("{} cases, {} failed\n", cases_, failed_);
    if (!options.table.empty()) {
      std::ofstream file(options.table, std::ios::app);
      for (const auto& [name, line] : lines_)
        file << fmt::format("{} {} {}\n", name, line.first, line.second);
      if (!file.flush()) {
        throw ddl::Error(ddl::ErrorCode::io, fmt::format("--table {}: cannot write", options.table));
      }
    }
    return failed_ == 0 ? 0 : 1;
  }

 private:
  std::map<std::string, std::pair<int, int>> lines_;
  int cases_ = 0;
  int failed_ = 0;
};

int run_threads(const Options& options) {
  Summary summary;
  for (const Job& job : jobs_of(options, options.ranks, true)) {
    std::vector<int> wrong(job.cases.size());
    std::mutex mutex;
    ddl::InProcessOptions in_process;
    in_process.context = matrix::options_of(job.family, job.transport, 0, job.ranks);
    ddl::run_in_process(
        job.ranks,
        [&](ddl::Context& context) {
          const std::vector<int> own = run_cases(job, context);
          const std::lock_guard lock(mutex);
          std::ranges::transform(own, wrong, wrong.begin(), std::plus());
        },
        in_process);
    summary.add(job, wrong);
  }
  return summary.close(options);
}

int run_processes(const Options& options, const matrix::MpiSession& mpi) {
  if (mpi.ranks() > matrix::most_ranks || (options.ranks != 0 && options.ranks != mpi.ranks())) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("found {} processes, expected 1 to {}, and what --ranks says", mpi.ranks(),
                                 matrix::most_ranks));
  }
  Summary summary;
  for (const Job& job : jobs_of(options, mpi.ranks(), false)) {
    std::vector<int> wrong;
    {
      ddl::Context context = ddl::Context::from_environment(
          matrix::options_of(job.family, job.transport, mpi.rank(), mpi.ranks()));
      wrong = run_cases(job, context);
    }
    for (int& ranks : wrong) ranks = mpi.sum(ranks);
    summary.add(job, wrong);
  }
  const int status = mpi.rank() == 0 ? summary.close(options) : 0;
  return mpi.sum(status);
}

int run(const Options& options) {
  if (options.list) {
    for (const Case& one : matrix::pairwise_cases()) fmt::print("{}\n", to_string(one));
    return 0;
  }
  if (!matrix::is_under_mpirun()) return run_threads(options);
  const matrix::MpiSession mpi;
  try {
    return run_processes(options, mpi);
  } catch (const std::exception& error) {
    fmt::print(stderr, "matrix_program: {}\n", error.what());
    matrix::MpiSession::abort();
  }
}

}  // namespace

int main(int count, char** arguments) {
  return ddl::tools::main_of("matrix_program", help, count, arguments,
                             [](const std::vector<std::string>& words) { return run(parse(words)); });
}
