// Concurrent collectives of several communicators, started in any order by several threads of each rank. See
// --help.

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <climits>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/tools/command_line.hpp"
#include "matrix/mpi_session.hpp"
#include "matrix/trial.hpp"

namespace {

using ddl::DataType;
using ddl::ReduceOp;
using ddl::topology::Collective;
using matrix::Case;
using matrix::Trial;

constexpr std::string_view help = R"(stress_program: many collectives at once

  stress_program [--ranks 4] [--operations 200] [--seed 1]      ranks are threads of this process
  mpirun -n 4 stress_program [--operations 200] [--seed 1] [--hosts 1]

Each rank has four communicators: all ranks, all in reverse, and two of some. For each a thread of its own
makes so many random calls: any collective, type and size, in and out of place, registered memory or not. Up
to 8 are under way in each; they are waited for in any order, tested, or continued. Every result is compared with
a serial one. --hosts: the processes pretend to be on so many. The exit status is 1 if a result is wrong.
)";

struct Options {
  int ranks = 4;
  int operations = 200;
  int seed = 1;
  int hosts = 1;
};

Options parse(std::span<const std::string> words) {
  using ddl::tools::Flag;
  constexpr std::array flags = {Flag{"--ranks", true}, Flag{"--operations", true}, Flag{"--seed", true},
                                Flag{"--hosts", true}};
  const ddl::tools::CommandLine line = ddl::tools::parse_flags(words, flags);
  Options options;
  line.read("--ranks", options.ranks, 1, matrix::most_ranks);
  line.read("--operations", options.operations, 1, INT_MAX);
  line.read("--seed", options.seed, 1, INT_MAX);
  line.read("--hosts", options.hosts, 1, INT_MAX);
  return options;
}

using Random = std::mt19937_64;

template <typename T, std::size_t N>
T one_of(const std::array<T, N>& choices, Random& random) {
  return choices[random() % N];
}

/// The same on all ranks that have the same `random`.
Case random_case(int ranks, Random& random) {
  constexpr int most_bits = 17;
  Case one;
  one.collective =
      one_of(std::array{Collective::all_reduce, Collective::all_reduce, Collective::reduce_scatter,
                        Collective::all_gather, Collective::broadcast, Collective::reduce},
             random);
  one.ranks = ranks;
  one.type =
      one_of(std::array{DataType::u8, DataType::i32, DataType::f32, DataType::f64, DataType::bf16}, random);
  const bool reduces = one.collective != Collective::all_gather && one.collective != Collective::broadcast;
  if (reduces) one.op = one_of(std::array{ReduceOp::sum, ReduceOp::max, ReduceOp::avg}, random);
  one.in_place = random() % 2 == 0;
  one.memory = one_of(std::array{matrix::Memory::registered, matrix::Memory::registered,
                                 matrix::Memory::plain, matrix::Memory::shifted},
                      random);
  one.count = matrix::Count::given;
  one.given = random() % (std::size_t{1} << (random() % most_bits));
  return one;
}

/// The first failure.
class Failure {
 public:
  void add(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void throw_if_any() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// The calls of one thread on one communicator.
class Caller {
 public:
  Caller(ddl::Context& context, ddl::Communicator communicator, std::uint64_t seed, int rank)
      : context_(context),
        communicator_(std::move(communicator)),
        calls_(seed),
        choices_(seed * 1000 + static_cast<std::uint64_t>(rank) + 1) {}

  void run(int operations) {
    for (int i = 0; i < operations; ++i) {
      const Case one = random_case(communicator_.size(), calls_);
      auto trial = std::make_unique<Trial>(one, context_, communicator_);
      constexpr std::uint64_t blocking_every = 4;
      if (choices_() % blocking_every == 0) {
        trial->run();
        check(one, *trial);
      } else {
        start(one, std::move(trial));
      }
      constexpr std::size_t most_under_way = 8;
      while (pending_.size() > choices_() % most_under_way) end_one();
    }
    while (!pending_.empty()) end_one();
    // A continuation may run after `wait` has returned; only that all are called is checked.
    for (int called = *continued_; called != to_continue_; called = *continued_) continued_->wait(called);
  }
  [[nodiscard]] int wrong() const noexcept { return wrong_; }

 private:
  struct Pending {
    Case one;
    std::unique_ptr<Trial> trial;
    ddl::Work work;
  };

  void start(const Case& one, std::unique_ptr<Trial> trial) {
    ddl::Work work = trial->start();
    if (choices_() % 2 == 0) {
      ++to_continue_;
      work.then([continued = continued_](const ddl::Error*) {
        ++*continued;
        continued->notify_one();
      });
    }
    pending_.push_back({one, std::move(trial), std::move(work)});
  }

  void end_one() {
    const auto at = static_cast<std::ptrdiff_t>(choices_() % pending_.size());
    Pending& pending = pending_[static_cast<std::size_t>(at)];
    constexpr std::uint64_t test_every = 3;
    if (choices_() % test_every != 0 || !pending.work.test()) pending.work.wait();
    check(pending.one, *pending.trial);
    pending_.erase(pending_.begin() + at);
  }

  void check(const Case& one, const Trial& trial) {
    const std::string message = trial.wrong();
    if (message.empty()) return;
    ++wrong_;
    fmt::print(stderr, "rank {}: {}: {}\n", communicator_.rank(), to_string(one), message);
  }

  ddl::Context& context_;
  ddl::Communicator communicator_;
  Random calls_;    // the same on all ranks
  Random choices_;  // this rank's own
  std::deque<Pending> pending_;
  int wrong_ = 0;
  int to_continue_ = 0;
  std::shared_ptr<std::atomic<int>> continued_ = std::make_shared<std::atomic<int>>(0);
};

/// Returns the number of wrong results on this rank.
int stress(ddl::Context& context, const Options& options) {
  ddl::Communicator& all = context.communicator();
  const int rank = context.rank();
  const int half = context.size() / 2;
  std::vector<ddl::Communicator> communicators = {all, all.split(0, -rank), all.split(rank % 2),
                                                  all.split(rank < half ? 0 : 1, rank % 3)};
  const auto colors = std::array{0, 0, rank % 2, rank < half ? 0 : 1};
  std::vector<std::unique_ptr<Caller>> callers;
  for (std::size_t c = 0; c < communicators.size(); ++c) {
    const auto seed =
        static_cast<std::uint64_t>(options.seed) * 100 + c * 10 + static_cast<std::uint64_t>(colors[c]);
    callers.push_back(std::make_unique<Caller>(context, communicators[c], seed, rank));
  }
  Failure failure;
  {
    std::vector<std::jthread> threads;
    for (const auto& caller : callers) {
      threads.emplace_back([&] {
        try {
          caller->run(options.operations);
        } catch (...) {
          failure.add(std::current_exception());
        }
      });
    }
  }
  failure.throw_if_any();
  int wrong = 0;
  for (const auto& caller : callers) wrong += caller->wrong();
  return wrong;
}

int end(int wrong) {
  fmt::print("stress: {}\n", wrong == 0 ? "all results are right" : fmt::format("{} wrong results", wrong));
  return wrong == 0 ? 0 : 1;
}

int run_processes(const Options& options) {
  const matrix::MpiSession mpi;
  try {
    ddl::ContextOptions context_options = ddl::ContextOptions::from_environment();
    if (options.hosts > 1) context_options.host_id = fmt::format("h{}", mpi.rank() % options.hosts);
    int own = 0;
    {
      ddl::Context context = ddl::Context::from_environment(context_options);
      own = stress(context, options);
    }
    const int wrong = mpi.sum(own);
    return mpi.rank() == 0 ? end(wrong) : wrong == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "stress_program, rank {}: {}\n", mpi.rank(), error.what());
    matrix::MpiSession::abort();
  }
}

int run_threads(const Options& options) {
  std::atomic<int> wrong = 0;
  ddl::InProcessOptions in_process;
  in_process.context = ddl::ContextOptions::from_environment();
  ddl::run_in_process(
      options.ranks, [&](ddl::Context& context) { wrong += stress(context, options); }, in_process);
  return end(wrong);
}

}  // namespace

int main(int count, char** arguments) {
  return ddl::tools::main_of(
      "stress_program", help, count, arguments, [](const std::vector<std::string>& words) {
        const Options options = parse(words);
        return matrix::is_under_mpirun() ? run_processes(options) : run_threads(options);
      });
}
