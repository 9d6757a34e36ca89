// The engine with ranks that are threads. Inside a host they share memory as threads do, or as processes do
// (with separate mappings, so that other memory is not shared); hosts are connected by a network.

#include "collectives/executor/engine.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <atomic>
#include <functional>
#include <latch>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "collectives/executor/waiting.hpp"
#include "collectives/watch/watch.hpp"
#include "ddl/error.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/verifier.hpp"
#include "mailbox_network.hpp"
#include "support/thrown_error.hpp"

namespace ddl::collectives {
namespace {

using topology::Algorithm;
using topology::Carrier;
using topology::Collective;
using topology::Decomposition;
using topology::Plan;
using topology::Program;
using topology::RankMap;
using topology::Step;
using topology::StepKind;

enum class Sharing { threads, processes, none };
enum class Networks { one_that_wakes, one_that_does_not, mpi_as_well };

/// A job: `hosts[r]` is the host of rank r.
class Job {
 public:
  Job(std::vector<int> hosts, Sharing sharing, Networks networks = Networks::one_that_wakes,
      test::SendsEnd sends_end = test::SendsEnd::at_delivery)
      : hosts_(std::move(hosts)),
        sharing_(sharing),
        networks_(networks),
        mailboxes_(ranks(), sends_end),
        mpi_mailboxes_(ranks(), sends_end) {
    const int count = 1 + *std::max_element(hosts_.begin(), hosts_.end());
    members_.resize(static_cast<std::size_t>(count));
    for (int rank = 0; rank < ranks(); ++rank) members_[host_of(rank)].push_back(rank);
    std::vector<std::string> names;
    for (const int host : hosts_) names.push_back(fmt::format("h{}", host));
    map_ = std::make_unique<RankMap>(names);
    watches_ = thread_watches(names);
    for (const std::vector<int>& members : members_)
      memories_.push_back(share(static_cast<int>(members.size())));
  }

  [[nodiscard]] int ranks() const { return static_cast<int>(hosts_.size()); }

  void run(const std::function<void(Engine&)>& body, int spins = 100) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Engine engine(settings(rank, spins));
          try {
            body(engine);
            engine.close();
          } catch (...) {
            engine.announce_failure("of the test");
            throw;
          }
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex_);
          errors.push_back(error.what());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<std::string> errors;

 private:
  [[nodiscard]] std::size_t host_of(int rank) const {
    return static_cast<std::size_t>(hosts_[static_cast<std::size_t>(rank)]);
  }

  std::vector<std::shared_ptr<HostMemory>> share(int members) {
    if (sharing_ == Sharing::none || members == 1) return {};
    if (sharing_ == Sharing::threads) {
      return std::vector(static_cast<std::size_t>(members), HostMemory::in_process(members));
    }
    std::vector<std::shared_ptr<HostMemory>> memories;
    std::vector<FileDescriptor> events;
    for (int i = 0; i < members; ++i) events.emplace_back(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    const auto copies = [&] {
      std::vector<FileDescriptor> all;
      for (const FileDescriptor& event : events) all.emplace_back(dup(event.get()));
      return all;
    };
    const JobToken token{1, 2};
    FileDescriptor file;
    memories.push_back(HostMemory::create(members, 0, token, copies(), file));
    for (int i = 1; i < members; ++i) memories.push_back(HostMemory::open(members, i, token, copies(), file));
    return memories;
  }

  EngineSettings settings(int rank, int spins) {
    EngineSettings settings;
    settings.rank = rank;
    settings.map = *map_;
    settings.spins = spins;
    settings.spins_beside_caller = spins;
    const std::vector<std::shared_ptr<HostMemory>>& memories = memories_[host_of(rank)];
    if (!memories.empty()) {
      const std::vector<int>& members = members_[host_of(rank)];
      const auto index = std::find(members.begin(), members.end(), rank) - members.begin();
      settings.memory = memories[static_cast<std::size_t>(index)];
      settings.members = members;
    }
    settings.watch = watches_[static_cast<std::size_t>(rank)];
    settings.network = mailboxes_.open(rank, networks_ != Networks::one_that_does_not);
    if (networks_ == Networks::mpi_as_well) settings.mpi = mpi_mailboxes_.open(rank, false);
    return settings;
  }

  std::vector<int> hosts_;
  Sharing sharing_;
  Networks networks_;
  test::Mailboxes mailboxes_;
  test::Mailboxes mpi_mailboxes_;
  std::vector<std::vector<int>> members_;
  std::unique_ptr<RankMap> map_;
  std::vector<std::shared_ptr<Watch>> watches_;
  std::vector<std::vector<std::shared_ptr<HostMemory>>> memories_;
  std::mutex mutex_;
};

std::vector<int> all_ranks(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) all[static_cast<std::size_t>(rank)] = rank;
  return all;
}

Plan plan_of(const std::string& grid, Algorithm algorithm, int ranks, int chunks, bool shared_first) {
  Plan plan;
  plan.decomposition = Decomposition::parse(grid, ranks);
  plan.dimensions.assign(static_cast<std::size_t>(plan.decomposition.dimensions()),
                         {algorithm, Carrier::network});
  if (shared_first) plan.dimensions[0].carrier = Carrier::shared_memory;
  plan.order = all_ranks(ranks);
  plan.chunks = chunks;
  return plan;
}

using Values = std::vector<std::int32_t>;

Values contribution(int rank, std::size_t count) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<std::int32_t>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101);
  }
  return values;
}

Values sum_of_all(int ranks, std::size_t count) {
  Values sum(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const Values values = contribution(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  return sum;
}

Call all_reduce_of(Values& input, Values& output, std::uint64_t sequence,
                   std::shared_ptr<const PreparedProgram> program) {
  Call call;
  call.id = {"all_reduce", 0, sequence, input.size(), DataType::i32};
  call.sequence = sequence;
  call.buffers = {reinterpret_cast<const std::byte*>(input.data()),
                  reinterpret_cast<std::byte*>(output.data()), 0, input.size()};
  call.type = DataType::i32;
  call.op = ReduceOp::sum;
  call.program = std::move(program);
  call.deadline = std::chrono::seconds(30);
  return call;
}

/// Each rank all-reduces `times` times, alternately in place and out of place.
void expect_all_reduce(Job& job, const Plan& plan, std::size_t count, int times = 2, int spins = 100) {
  const int ranks = job.ranks();
  const Values sum = sum_of_all(ranks, count);
  std::atomic<int> wrong = 0;
  job.run(
      [&](Engine& engine) {
        const auto program = std::make_shared<PreparedProgram>(
            topology::lower(plan, engine.rank(), count), count, 4, all_ranks(ranks), engine.ways(false));
        for (int i = 0; i < times; ++i) {
          Values input = contribution(engine.rank(), count);
          Values output(count, -1);
          const bool in_place = i % 2 == 0;
          engine.run(
              all_reduce_of(input, in_place ? input : output, static_cast<std::uint64_t>(i + 1), program));
          if ((in_place ? input : output) != sum) ++wrong;
          if (!in_place && input != contribution(engine.rank(), count)) ++wrong;
        }
      },
      spins);
  EXPECT_EQ(job.errors, std::vector<std::string>{});
  EXPECT_EQ(wrong, 0) << to_string(plan.decomposition) << " " << to_string(plan.dimensions[0].algorithm)
                      << " of " << count;
}

constexpr Algorithm all_algorithms[] = {Algorithm::ring, Algorithm::halving_doubling, Algorithm::two_shot,
                                        Algorithm::one_shot, Algorithm::tree};

// Sums inside a host would be wrong, or ranks would hang.
TEST(Engine, AllReducesInsideAHost) {
  for (const Sharing sharing : {Sharing::threads, Sharing::processes}) {
    for (const Algorithm algorithm : all_algorithms) {
      for (const std::size_t count : {1u, 6u, 300u, 5000u, 300'000u}) {
        for (const int ranks : {2, 3, 5}) {
          Job job(std::vector<int>(static_cast<std::size_t>(ranks)), sharing);
          expect_all_reduce(job, plan_of(std::to_string(ranks), algorithm, ranks, 1, true), count);
        }
      }
    }
  }
}

// Large plain memory is copied through a small staging area. Ranks that fill theirs with pieces that no peer
// can use yet would deadlock.
TEST(Engine, StagingMemoryRunsOutWithoutADeadlock) {
  for (const int chunks : {1, 8}) {
    Job job({0, 0, 0, 0}, Sharing::processes);
    expect_all_reduce(job, plan_of("4", Algorithm::two_shot, 4, chunks, true), 5'000'000, 1);
  }
}

// Sums between hosts would be wrong.
TEST(Engine, AllReducesOverHosts) {
  for (const Networks networks : {Networks::one_that_wakes, Networks::one_that_does_not}) {
    for (const Sharing sharing : {Sharing::threads, Sharing::processes, Sharing::none}) {
      for (const Algorithm algorithm : all_algorithms) {
        for (const std::size_t count : {3u, 1000u, 300'000u}) {
          Job job({0, 0, 1, 1, 2, 2}, sharing, networks);
          expect_all_reduce(job, plan_of("2x3", algorithm, 6, 3, sharing != Sharing::none), count);
        }
      }
    }
  }
}

// Rank 1 needs nothing more from MPI and waits for rank 2, which waits for rank 0, whose send completes only
// when MPI progresses on rank 1: all three would hang.
TEST(Engine, MpiMovesOnWhileOnlyTheHostIsWaitedFor) {
  constexpr std::size_t count = 100;
  Job job({0, 1, 1}, Sharing::processes, Networks::mpi_as_well, test::SendsEnd::acknowledged);
  std::atomic<int> right = 0;
  job.run([&](Engine& engine) {
    Values values = contribution(0, count);
    std::uint64_t sequence = 0;
    const auto pass = [&](int from, int to, bool by_mpi) {
      ++sequence;
      if (engine.rank() != from && engine.rank() != to) return;
      if (engine.rank() == to) values.assign(count, -1);
      const bool sends = engine.rank() == from;
      Program program;
      program.steps.push_back({.kind = sends ? StepKind::send : StepKind::receive,
                               .peer = static_cast<std::int32_t>(sends ? to : from),
                               .begin = 0,
                               .end = count});
      const auto prepared =
          std::make_shared<PreparedProgram>(program, count, 4, all_ranks(3), engine.ways(by_mpi));
      engine.run(all_reduce_of(values, values, sequence, prepared));
      if (values == contribution(0, count)) ++right;
    };
    pass(0, 1, true);
    pass(0, 2, true);
    pass(2, 1, false);
  });
  EXPECT_EQ(job.errors, std::vector<std::string>{});
  EXPECT_EQ(right, 6);
}

// Data of a rank that completes its part and then does not call the library for long would stay in its
// buffers. Here the rank calls again only after the others have received the data.
TEST(Engine, WhatWasSentLeavesWhenACallIsOver) {
  constexpr std::size_t count = 1000;
  Job job({0, 1, 2}, Sharing::none, Networks::one_that_wakes, test::SendsEnd::buffered);
  Plan plan = plan_of("3", Algorithm::tree, 3, 1, false);
  plan.collective = Collective::broadcast;
  std::latch received(3);
  job.run([&](Engine& engine) {
    const auto program = std::make_shared<PreparedProgram>(topology::lower(plan, engine.rank(), count, 0),
                                                           count, 4, all_ranks(3), engine.ways(false));
    Values values(count, engine.rank());
    engine.run(all_reduce_of(values, values, 1, program));
    received.arrive_and_wait();
  });
  EXPECT_EQ(job.errors, std::vector<std::string>{});
}

// More messages than a ring holds would block ranks that sleep at once.
TEST(Engine, FullRingsEmptyAgain) {
  Job job({0, 0, 0}, Sharing::processes);
  expect_all_reduce(job, plan_of("3", Algorithm::ring, 3, 64, true), 64 * 64, 20, 0);
}

// A trainer whose ranks reduce on two communicators in different orders would hang.
TEST(Engine, CallsOfTwoCommunicatorsComeInAnyOrder) {
  constexpr std::size_t count = 100'000;
  for (const Sharing sharing : {Sharing::processes, Sharing::none}) {
    Job job({0, 0, 0, 0}, sharing);
    const Plan plan = plan_of("4", Algorithm::ring, 4, 4, sharing != Sharing::none);
    const Values sum = sum_of_all(4, count);
    std::atomic<int> wrong = 0;
    job.run([&](Engine& engine) {
      const auto program = std::make_shared<PreparedProgram>(topology::lower(plan, engine.rank(), count),
                                                             count, 4, all_ranks(4), engine.ways(false));
      constexpr int calls = 10;
      std::vector<Values> values(2 * calls, contribution(engine.rank(), count));
      std::vector<std::shared_ptr<WorkState>> works;
      for (int i = 0; i < 2 * calls; ++i) {
        const int communicator = engine.rank() % 2 == 0 ? i / calls : 1 - i / calls;
        Values& mine = values[static_cast<std::size_t>(i)];
        Call call = all_reduce_of(mine, mine, static_cast<std::uint64_t>(i % calls + 1), program);
        call.communicator = static_cast<std::uint16_t>(communicator);
        works.push_back(engine.start(call));
      }
      for (const auto& work : works) work->wait();
      for (const Values& mine : values) {
        if (mine != sum) ++wrong;
      }
    });
    EXPECT_EQ(job.errors, std::vector<std::string>{});
    EXPECT_EQ(wrong, 0);
  }
}

// Blocking calls of several threads, each on its own communicator, would wait for each other.
TEST(Engine, ThreadsCallAtOnce) {
  constexpr std::size_t count = 3000;
  constexpr int threads_per_rank = 3;
  Job job({0, 0, 1}, Sharing::processes);
  const Plan plan = plan_of("3", Algorithm::ring, 3, 1, false);
  const Values sum = sum_of_all(3, count);
  std::atomic<int> wrong = 0;
  job.run([&](Engine& engine) {
    const auto program = std::make_shared<PreparedProgram>(topology::lower(plan, engine.rank(), count), count,
                                                           4, all_ranks(3), engine.ways(false));
    std::vector<std::thread> threads;
    for (int t = 0; t < threads_per_rank; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t i = 1; i <= 50; ++i) {
          Values mine = contribution(engine.rank(), count);
          Call call = all_reduce_of(mine, mine, i, program);
          call.communicator = static_cast<std::uint16_t>(t);
          if (i % 3 == 0) {
            engine.start(call)->wait();
          } else {
            engine.run(call);
          }
          if (mine != sum) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(job.errors, std::vector<std::string>{});
  EXPECT_EQ(wrong, 0);
}

// The path of small messages would fail when one rank is ahead, waits are long, or other calls come in
// between.
TEST(Engine, SmallExchangesMixWithOthers) {
  for (const int spins : {0, 1000}) {
    Job job({0, 0, 0}, Sharing::processes);
    const Plan one_shot = plan_of("3", Algorithm::one_shot, 3, 1, true);
    const Plan ring = plan_of("3", Algorithm::ring, 3, 1, true);
    std::atomic<int> wrong = 0;
    job.run(
        [&](Engine& engine) {
          std::minstd_rand random(static_cast<unsigned>(engine.rank()));
          for (const std::size_t count : {1u, 6u, 7u, 1000u, 20'000u, 100'000u}) {
            const auto small = std::make_shared<PreparedProgram>(
                topology::lower(one_shot, engine.rank(), count), count, 4, all_ranks(3), engine.ways(false));
            const auto other = std::make_shared<PreparedProgram>(topology::lower(ring, engine.rank(), count),
                                                                 count, 4, all_ranks(3), engine.ways(false));
            const Values sum = sum_of_all(3, count);
            for (std::uint64_t i = 1; i <= (count > 1000 ? 100 : 300); ++i) {
              Values mine = contribution(engine.rank(), count);
              Values result(count);
              const bool is_small = i % 7 != 0;
              Call call = all_reduce_of(mine, i % 2 == 0 ? mine : result, i, is_small ? small : other);
              call.communicator = static_cast<std::uint16_t>(count);
              if (random() % 5 == 0) {
                engine.start(call)->wait();
              } else {
                engine.run(call);
              }
              if ((i % 2 == 0 ? mine : result) != sum) ++wrong;
            }
          }
        },
        spins);
    EXPECT_EQ(job.errors, std::vector<std::string>{});
    EXPECT_EQ(wrong, 0);
  }
}

// ddl-plan would verify and simulate something else than what the ranks run.
TEST(Engine, RunsWhatIsVerifiedAndSimulated) {
  const topology::Topology graph = topology::make_preset("ethernet:2x3");
  for (const Algorithm algorithm : all_algorithms) {
    for (const std::size_t count : {7u, 300'000u}) {
      const Plan plan = plan_of("3x2", algorithm, 6, 2, true);
      const topology::Schedule schedule =
          topology::schedule_to_run(plan, count, 0, graph, topology::place_by_host(graph, 6));
      EXPECT_TRUE(topology::verify(schedule)) << topology::verify(schedule).problem;
      Job job({0, 0, 0, 1, 1, 1}, Sharing::processes);
      std::atomic<int> others = 0;
      job.run([&](Engine& engine) {
        const PreparedProgram program(topology::lower(plan, engine.rank(), count), count, 4, all_ranks(6),
                                      engine.ways(false));
        if (program.program() != schedule.ranks[static_cast<std::size_t>(engine.rank())]) ++others;
      });
      EXPECT_EQ(others, 0) << to_string(algorithm) << " of " << count;
    }
  }
}

// A small call runs in different code if it must wait; its bits would depend on that, or on the rank.
TEST(Engine, SmallCallsOfHalfPrecisionHaveTheSameBitsEitherWay) {
  constexpr std::size_t count = 500;
  for (const int ranks : {2, 3, 4}) {
    Job job(std::vector<int>(static_cast<std::size_t>(ranks)), Sharing::processes);
    const Plan plan = plan_of(std::to_string(ranks), Algorithm::one_shot, ranks, 1, true);
    std::vector<std::vector<std::uint16_t>> results(static_cast<std::size_t>(2 * ranks));
    job.run([&](Engine& engine) {
      const auto rank = static_cast<std::size_t>(engine.rank());
      const auto program = std::make_shared<PreparedProgram>(topology::lower(plan, engine.rank(), count),
                                                             count, 2, all_ranks(ranks), engine.ways(false));
      for (const bool starts : {false, true}) {
        std::minstd_rand random(static_cast<unsigned>(rank + 1));
        std::vector<std::uint16_t> values(count);
        for (std::uint16_t& value : values) value = static_cast<std::uint16_t>(0x3c00 + random() % 0x800);
        Values none(count);
        Call call = all_reduce_of(none, none, starts ? 2 : 1, program);
        auto* const bytes = reinterpret_cast<std::byte*>(values.data());
        call.buffers = {bytes, bytes, 0, count};
        call.type = DataType::bf16;
        call.op = ReduceOp::avg;
        if (starts) {
          engine.start(call)->wait();
        } else {
          engine.run(call);
        }
        results[2 * rank + (starts ? 1 : 0)] = values;
      }
    });
    EXPECT_EQ(job.errors, std::vector<std::string>{});
    for (const auto& result : results) EXPECT_EQ(result, results[0]) << ranks << " ranks";
  }
}

Step send(int peer, std::size_t begin, std::size_t end) {
  return {.kind = StepKind::send, .peer = peer, .begin = begin, .end = end};
}
Step receive(int peer, std::size_t begin, std::size_t end) {
  return {.kind = StepKind::receive, .peer = peer, .begin = begin, .end = end};
}

std::shared_ptr<PreparedProgram> program_of(std::vector<Step> steps, std::size_t count,
                                            const Engine& engine) {
  const auto plan = std::make_shared<ChosenPlan>(ChosenPlan{"a plan by hand", {"the only phase"}});
  return std::make_shared<PreparedProgram>(Program{std::move(steps), 0}, count, 4,
                                           all_ranks(engine.map().ranks()), engine.ways(false), plan);
}

void expect_shared_copies(std::size_t n) {
  const std::size_t changed = n / 2;
  Job job({0, 0, 0, 0}, Sharing::processes);
  std::atomic<int> wrong = 0;
  job.run([&](Engine& engine) {
    const int rank = engine.rank();
    std::vector<Step> steps;
    if (rank == 0) {
      steps = {send(1, 0, n), send(2, 0, n), receive(3, changed, changed + 1), send(1, 0, n), send(2, 0, n)};
    } else if (rank == 3) {
      steps = {send(0, changed, changed + 1)};
    } else {
      steps = {receive(0, 0, n), receive(0, n, 2 * n)};
    }
    const auto program = program_of(steps, 2 * n, engine);
    if (rank == 0) {
      const std::size_t pieces = program->posts() / 4;
      EXPECT_EQ(pieces > 2, n > 100'000);
      EXPECT_EQ(program->copies().size(), pieces + 1) << "one more of the piece that is written";
    }
    for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
      Values values = contribution(rank, 2 * n);
      engine.run(all_reduce_of(values, values, sequence, program));
      if (rank == 0 || rank == 3) continue;
      Values expected = contribution(0, n);
      if (!std::equal(expected.begin(), expected.end(), values.begin())) ++wrong;
      expected[changed] = contribution(3, n)[changed];
      if (!std::equal(expected.begin(), expected.end(), values.begin() + n)) ++wrong;
    }
  });
  EXPECT_EQ(job.errors, std::vector<std::string>{});
  EXPECT_EQ(wrong, 0);
}

// A broadcast from plain memory would copy its buffer once for each peer; or send what was there before.
TEST(Engine, SendsOfTheSameElementsShareACopy) {
  expect_shared_copies(20'000);
  expect_shared_copies(300'000);
}

void wait_for(const std::function<bool()>& condition) {
  const auto until = Clock::now() + std::chrono::seconds(20);
  while (!condition() && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// A rank that sends plain memory would wait for its peers; or they would read what it wrote there, or freed,
// later.
TEST(Engine, ASenderGoesOnBeforeItsCopiesAreRead) {
  for (const std::size_t n : {20'000u, 200'000u}) {
    Job job({0, 0, 0}, Sharing::processes);
    std::atomic<bool> is_over = false;
    std::atomic<int> wrong = 0;
    job.run([&](Engine& engine) {
      const bool sends = engine.rank() == 0;
      const auto program = program_of(
          sends ? std::vector{send(1, 0, n), send(2, 0, n)} : std::vector{receive(0, 0, n)}, n, engine);
      Values values = contribution(sends ? 0 : 1, n);
      if (!sends) {
        wait_for([&] { return is_over.load(); });
        if (!is_over) ++wrong;
        std::this_thread::sleep_for(std::chrono::milliseconds(50) * engine.rank());
      }
      engine.run(all_reduce_of(values, values, 1, program));
      if (!sends && values != contribution(0, n)) ++wrong;
      if (!sends) return;
      std::ranges::fill(values, -1);
      is_over = true;
    });
    EXPECT_EQ(job.errors, std::vector<std::string>{});
    EXPECT_EQ(wrong, 0) << n;
  }
}

// A rank would never leave the job if a peer calls something else, or nothing.
TEST(Engine, CopiesThatAreNeverReadAreAFailure) {
  constexpr std::size_t n = 20'000;
  Job job({0, 0}, Sharing::processes);
  std::atomic<bool> is_over = false;
  job.run([&](Engine& engine) {
    const bool sends = engine.rank() == 0;
    Values values(4 * n);
    std::vector<Step> steps;  // more sends than there are turn blocks
    for (std::size_t i = 0; i < (sends ? 3 : 4); ++i) {
      steps.push_back(sends ? send(1, i * n, (i + 1) * n) : receive(0, i * n, (i + 1) * n));
    }
    const auto program = program_of(std::move(steps), 4 * n, engine);
    Call call = all_reduce_of(values, values, 1, program);
    if (sends) {
      call.deadline = std::chrono::milliseconds(50);
      engine.run(std::move(call));
      engine.close();
      is_over = true;
    } else {
      wait_for([&] { return is_over.load(); });
      engine.run(std::move(call));
    }
  });
  ASSERT_EQ(job.errors.size(), 1u);
  test::expect_parts(job.errors[0], {"has not been read within 50 ms by rank 1 (host h0)"});
}

// A rank whose peer is late would fill the machine's memory with copies.
TEST(Engine, ASenderThatIsAheadWaits) {
  constexpr std::size_t n = 65'536;
  constexpr int calls = 64;
  Job job({0, 0}, Sharing::processes);
  std::atomic<int> sent = 0;
  std::atomic<int> wrong = 0;
  job.run([&](Engine& engine) {
    const bool sends = engine.rank() == 0;
    const auto program = program_of({sends ? send(1, 0, n) : receive(0, 0, n)}, n, engine);
    if (!sends) {
      wait_for([&] { return sent > 2; });
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_GT(sent, 2) << "within the limit it does not wait";
      EXPECT_LT(sent, calls / 2);
    }
    for (int i = 0; i < calls; ++i) {
      Values values = contribution(sends ? i : -1, n);
      engine.run(all_reduce_of(values, values, static_cast<std::uint64_t>(i + 1), program));
      if (sends) {
        ++sent;
      } else if (values != contribution(i, n)) {
        ++wrong;
      }
    }
  });
  EXPECT_EQ(job.errors, std::vector<std::string>{});
  EXPECT_EQ(wrong, 0);
}

// A rank that sleeps until all of many messages have been read would sleep forever, because its peer's ring
// holds fewer notices.
TEST(Engine, SleepersWakeBeforeRingsAreFull) {
  Job job({0, 0, 0}, Sharing::threads);
  constexpr std::size_t messages = 200;
  constexpr std::size_t length = 1000;
  constexpr std::size_t count = messages * length;
  job.run(
      [&](Engine& engine) {
        std::vector<Step> steps;
        // Rank 1 reads rank 0's data only after rank 2 has sent.
        if (engine.rank() == 1) steps.push_back(receive(2, 0, count));
        if (engine.rank() == 2) steps.push_back(send(1, 0, count));
        for (std::size_t i = 0; i < messages && engine.rank() < 2; ++i) {
          steps.push_back(engine.rank() == 0 ? send(1, i * length, (i + 1) * length)
                                             : receive(0, i * length, (i + 1) * length));
        }
        if (engine.rank() == 2) {
          const RingState& ring = engine.memory()->ring_state(0, 1);
          while (ring.read < messages) std::this_thread::yield();
          for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // so that rank 0 falls asleep
        }
        Values values = contribution(engine.rank(), count);
        engine.run(all_reduce_of(values, values, 1, program_of(std::move(steps), count, engine)));
        if (engine.rank() == 1) {
          EXPECT_EQ(values, contribution(0, count));
        }
      },
      0);
  EXPECT_EQ(job.errors, std::vector<std::string>{});
}

// Nobody would end the call, and who waits for it would wait for ever.
TEST(Engine, AStartedCallWithoutRoomForItsScratchMemoryFails) {
  Job job({0, 0}, Sharing::processes);
  job.run([&](Engine& engine) {
    Values values(5);
    constexpr std::size_t too_much = std::size_t{1} << 50;
    const auto program = std::make_shared<PreparedProgram>(
        Program{{}, too_much}, values.size(), 4, all_ranks(engine.map().ranks()), engine.ways(false));
    engine.start(all_reduce_of(values, values, 1, program))->wait();
  });
  ASSERT_EQ(job.errors.size(), 2u);
  for (const std::string& error : job.errors) {
    EXPECT_NE(error.find("has no room for"), std::string::npos) << error;
  }
}

// The message of a timeout would not name the missing rank and the call.
TEST(Engine, ATimeoutNamesTheCallThePeerAndThePlan) {
  for (const Sharing sharing : {Sharing::threads, Sharing::none}) {
    Job job({0, 0}, sharing);
    std::atomic<bool> over = false;
    job.run([&](Engine& engine) {
      if (engine.rank() == 1) {
        while (!over) std::this_thread::yield();
        return;
      }
      Values values(5);
      Call call = all_reduce_of(values, values, 3, program_of({receive(1, 0, 5)}, 5, engine));
      call.deadline = std::chrono::milliseconds(50);
      const Error error = test::error_of([&] { engine.run(call); });
      over = true;
      EXPECT_EQ(error.code(), ErrorCode::timeout);
      const std::string text = error.what();
      for (const char* part :
           {"all_reduce #3 (sum of 5 i32, 20 bytes) on rank 0 (host h0)", "the deadline passed after",
            "rank 1 (host h0)", "the only phase, chunk 0", "plan: a plan by hand"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
      }
      EXPECT_EQ(test::error_of([&] { engine.run(call); }).code(), ErrorCode::timeout);
      throw error;  // the other rank must not wait for an orderly close
    });
    EXPECT_EQ(job.errors.size(), 1u);
  }
}

// A rank that has left or failed would be named only when the deadline passes.
TEST(Engine, PeersThatLeftOrFailedAreNamed) {
  for (const bool fails : {true, false}) {
    Job job({0, 0}, Sharing::processes);
    job.run([&](Engine& engine) {
      if (engine.rank() == 1) {
        if (fails) engine.announce_failure("it had enough");
        return;
      }
      Values values(5);
      engine.run(all_reduce_of(values, values, 1, program_of({receive(1, 0, 5)}, 5, engine)));
    });
    ASSERT_EQ(job.errors.size(), 1u);
    EXPECT_NE(job.errors[0].find(fails ? "rank 1 (host h0) gave up: it had enough"
                                       : "rank 1 (host h0) has left the job"),
              std::string::npos)
        << job.errors[0];
  }
}

// Ranks that call with different counts would get wrong data instead of an error.
TEST(Engine, OtherLengthsAreAMismatch) {
  Job job({0, 0}, Sharing::processes);
  job.run([&](Engine& engine) {
    Values values(50);
    const std::size_t mine = engine.rank() == 0 ? 50 : 49;
    auto program = engine.rank() == 0 ? program_of({receive(1, 0, mine)}, 50, engine)
                                      : program_of({send(0, 0, mine)}, 50, engine);
    engine.run(all_reduce_of(values, values, 1, std::move(program)));
  });
  ASSERT_GE(job.errors.size(), 1u);
  EXPECT_NE(job.errors[0].find("has 196 bytes, expected 200"), std::string::npos) << job.errors[0];
}

// Two ranks would share one core while another is idle, or all would move at once and meet again.
TEST(CoreSpreading, OneOfThoseOnACrowdedCoreMoves) {
  const std::vector<int> both{0, 1};
  EXPECT_EQ(CoreSpreading::better_core(both, {0, 0}, 1), 1);
  EXPECT_EQ(CoreSpreading::better_core(both, {0, 0}, 0), -1) << "the other one does";
  EXPECT_EQ(CoreSpreading::better_core(both, {0, 1}, 1), -1);
  EXPECT_EQ(CoreSpreading::better_core(both, {0, 0, 1}, 1), -1) << "two and one are as good as one and two";
  EXPECT_EQ(CoreSpreading::better_core(both, {0, 0, 0, 1}, 2), 1);
  EXPECT_EQ(CoreSpreading::better_core(both, {-1, -1}, 1), -1);
  EXPECT_EQ(CoreSpreading::better_core({0}, {0, 0}, 1), -1);
}

}  // namespace
}  // namespace ddl::collectives
