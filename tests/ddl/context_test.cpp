// Context: ranks, groups, agreement on errors, exit reports, options.

#include "ddl/context.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ddl/broadcast_parameters.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/log.hpp"
#include "support/environment_variable.hpp"
#include "support/job_options.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::error_of;
using test::expect_parts;

using Variable = test::EnvironmentVariable;

// A program would shard its data wrongly.
TEST(Context, KnowsItsPlaceOnItsHost) {
  InProcessOptions options = test::on_hosts();
  options.hosts = {"a", "b", "a", "b", "b"};
  run_in_process(
      5,
      [](Context& context) {
        const std::vector<int> local_rank{0, 0, 1, 1, 2};
        const std::vector<int> local_size{2, 3, 2, 3, 3};
        EXPECT_EQ(context.size(), 5);
        EXPECT_EQ(context.hosts(), 2);
        EXPECT_EQ(context.local_rank(), local_rank.at(static_cast<std::size_t>(context.rank())));
        EXPECT_EQ(context.local_size(), local_size.at(static_cast<std::size_t>(context.rank())));
        EXPECT_EQ(context.is_root(), context.rank() == 0);
      },
      options);
}

// Hybrid-parallel trainers could not train: the replicas of a model's part are a group of ranks, not the job.
TEST(Context, AGroupIsAContextOfItsOwn) {
  InProcessOptions options = test::on_hosts();
  options.hosts = {"a", "a", "a", "b", "b", "b"};
  run_in_process(
      6,
      [](const Context& job) {
        const bool odd = job.rank() % 2 == 1;
        std::vector<float> values = {static_cast<float>(job.rank())};
        std::vector<float> gradient = {1.0f};
        std::optional<GradientReducer> reducer;
        {
          const Context group = job.split(odd ? 1 : 0, -job.rank());
          EXPECT_EQ(group.size(), 3);
          EXPECT_EQ(group.rank(), 2 - job.rank() / 2);
          EXPECT_EQ(group.hosts(), 2);
          EXPECT_EQ(job.size(), 6);
          broadcast_parameters(group, {{"w", values}});
          EXPECT_EQ(values[0], odd ? 5 : 4);
          reducer.emplace(group, std::vector<Gradient>{{"w", gradient}},
                          GradientReducerOptions{.gradients = GradientKind::sum});
          const auto fail = [] { throw Error(ErrorCode::io, "the disk is full"); };
          if (odd) {
            EXPECT_TRUE(error_of([&] { group.root_only("save", fail); }).agreed());
          }
        }
        reducer->ready(0);  // it keeps its group alive
        EXPECT_EQ(reducer->wait(job.rank() + 1.0).weight, odd ? 12 : 9);
        test::expect_error(ErrorCode::invalid_argument, {"color -1"},
                           [&] { static_cast<void>(job.split(-1)); });
      },
      options);
}

// Objects made with a context could not outlive the variable that held it.
TEST(Context, CopiesAreTheSameContext) {
  run_in_process(2, [](Context& context) {
    Context moved = std::move(context);
    const Context copy = moved;
    EXPECT_EQ(&copy.communicator(), &moved.communicator());
    std::int64_t one = 1;
    copy.communicator().all_reduce(std::span(&one, 1));
    EXPECT_EQ(one, 2);
  });
}

// Without mpirun a program could not be run or debugged alone.
TEST(Context, AloneIsOneRank) {
  Context context = Context::from_environment();
  EXPECT_EQ(context.rank(), 0);
  EXPECT_EQ(context.size(), 1);
  std::vector<float> values{1, 2, 3};
  context.communicator().all_reduce(std::span(values));
  context.communicator().barrier();
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  int runs = 0;
  context.root_only("work", [&] { ++runs; });
  context.on_all_ranks("work", [&] { ++runs; });
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(context.broadcast_string("text"), "text");
  EXPECT_EQ(context.communicator().plan(topology::Collective::all_reduce, 8, DataType::f32).order,
            (std::vector<int>{0}));
  EXPECT_EQ(context.topology()->devices().size(), 1U);
  EXPECT_TRUE(context.measure_ways().empty());
}

// Every rank would write the checkpoint.
TEST(Context, RootOnlyRunsOnRankZeroAloneAndTheOthersWait) {
  std::atomic<int> runs{0};
  run_in_process(
      4,
      [&](Context& context) {
        context.root_only("count", [&] {
          EXPECT_TRUE(context.is_root());
          ++runs;
        });
        EXPECT_EQ(runs.load(), 1);
      },
      test::on_hosts());
}

// A long save would end the job with a timeout on the waiting ranks.
TEST(Context, RootOnlyPausesTheDeadlineOfTheWaitingRanks) {
  InProcessOptions options = test::on_hosts();
  options.context.deadline = std::chrono::milliseconds(300);
  run_in_process(
      3,
      [&](Context& context) {
        context.root_only("slow", [&] {
          const auto end = std::chrono::steady_clock::now() + 3 * context.options().deadline;
          while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
        });
      },
      options);
}

// So would work for which one rank takes longer, such as its part of a checkpoint on a slow disk.
TEST(Context, UnlimitedWorkOnAllRanksPausesTheDeadline) {
  InProcessOptions options = test::on_hosts();
  options.context.deadline = std::chrono::milliseconds(300);
  run_in_process(
      3,
      [&](Context& context) {
        const auto slow_on_one = [&] {
          const auto end = std::chrono::steady_clock::now() + 3 * context.options().deadline;
          while (context.rank() == 1 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        };
        context.on_all_ranks("slow", slow_on_one, WorkTime::unlimited);
      },
      options);
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// The exit report of a job of three ranks that fails while rank 0 works.
std::string report_of_failing_work() {
  std::atomic<int> told{0};
  std::string text;
  const auto body = [&](Context& context) {
    const Error error = error_of([&] {
      context.root_only("check\npoint", [&] {
        context.report({ErrorCode::io, "the disk is gone"});
        while (told < 2) std::this_thread::yield();
      });
    });
    if (context.is_root()) return;
    EXPECT_EQ(error.code(), ErrorCode::peer_failed);
    if (context.rank() == 1) text = error.what();
    ++told;
  };
  testing::internal::CaptureStderr();
  run_in_process(3, body, test::on_hosts());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ddl [0] error: the disk is gone\n");
  return text;
}

// The report of a job that failed while saving would not say what its ranks were doing.
TEST(Context, TheExitReportNamesWhatRankZeroDoesAndWhoWaitsForIt) {
  const std::string waits = "; waits in root_only \"check?point\" for rank 0";
  bool both_waited = false;
  // Rank 0 may start before the others have noticed that all ranks have arrived.
  for (int attempt = 0; attempt < 100 && !both_waited; ++attempt) {
    const std::string text = report_of_failing_work();
    expect_parts(text, {"the disk is gone", "outside of collectives; its last was barrier",
                        "; in root_only \"check?point\""});
    EXPECT_EQ(occurrences(text, "root_only \"check?point\""), 3U) << text;
    both_waited = occurrences(text, waits) == 2;
  }
  EXPECT_TRUE(both_waited);
}

// The exit report would name the wrong work.
TEST(Context, TheExitReportNamesTheInnermostWorkThatIsNotOver) {
  std::atomic<bool> told{false};
  std::string text;
  const auto body = [&](Context& context) {
    error_of([&] {
      context.on_all_ranks("outer", [&] {
        error_of([&] { context.root_only("inner", [] { throw Error(ErrorCode::io, "full"); }); });
        if (context.rank() == 1) {
          context.report({ErrorCode::io, "the disk is gone"});
          while (!told) std::this_thread::yield();
          return;
        }
        const Error error = error_of([&] { context.communicator().barrier(); });
        if (!context.is_root()) return;
        text = error.what();
        told = true;
      });
    });
  };
  testing::internal::CaptureStderr();
  run_in_process(2, body, test::on_hosts());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("the disk is gone"), std::string::npos);
  expect_parts(text, {"; in on_all_ranks \"outer\""});
  EXPECT_EQ(text.find("inner"), std::string::npos) << text;
}

// The error would name the library's barrier instead of the save that a rank does not arrive at.
TEST(Context, ATimeoutNamesTheWorkThatARankDoesNotComeTo) {
  InProcessOptions options = test::on_hosts();
  options.context.deadline = std::chrono::milliseconds(100);
  std::atomic<bool> timed_out{false};
  run_in_process(
      2,
      [&](Context& context) {
        if (context.rank() == 1) {
          while (!timed_out) std::this_thread::yield();
          return;
        }
        const Error error = error_of([&] { context.root_only("checkpoint", [] { FAIL(); }); });
        EXPECT_EQ(error.code(), ErrorCode::timeout);
        expect_parts(error.what(), {"comes to root_only \"checkpoint\"", "rank 1"});
        timed_out = true;
      },
      options);
}

// A failed save would leave the other ranks waiting, or every rank with another message.
TEST(Context, AnErrorOfRootOnlyReachesEveryRank) {
  std::atomic<int> caught{0};
  run_in_process(
      3,
      [&](Context& context) {
        const Error error =
            error_of([&] { context.root_only("saving", [] { throw Error(ErrorCode::io, "disk full"); }); });
        EXPECT_EQ(error.code(), ErrorCode::io);
        EXPECT_STREQ(error.what(), "saving: disk full");
        EXPECT_TRUE(error.agreed());
        ++caught;
        // The job remains usable.
        EXPECT_EQ(context.broadcast_string(context.is_root() ? "next" : ""), "next");
      },
      test::on_hosts());
  EXPECT_EQ(caught.load(), 3);
}

// A missing file on one rank would hang the others, or the message would not say which rank it was.
TEST(Context, OnAllRanksThrowsTheLowestFailingRanksErrorEverywhere) {
  std::atomic<int> caught{0};
  run_in_process(
      5,
      [&](Context& context) {
        const Error error = error_of([&] {
          context.on_all_ranks("reading", [&] {
            if (context.rank() == 3) throw Error(ErrorCode::io, "no such file");
            if (context.rank() == 4) throw std::runtime_error("something else");
          });
        });
        EXPECT_EQ(error.code(), ErrorCode::io);
        EXPECT_STREQ(error.what(), "reading: rank 3: no such file");
        EXPECT_TRUE(error.agreed());
        ++caught;
      },
      test::on_hosts());
  EXPECT_EQ(caught.load(), 5);
}

// A wrong flag would be blamed on rank 0 although all ranks have it.
TEST(Context, OnAllRanksNamesNoRankIfAllFailedAlike) {
  run_in_process(
      3,
      [&](Context& context) {
        const Error error = error_of([&] {
          context.on_all_ranks("options", [] { throw Error(ErrorCode::invalid_argument, "batch of zero"); });
        });
        EXPECT_STREQ(error.what(), "options: batch of zero");
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      },
      test::on_hosts());
}

// The message of another library's exception would be lost.
TEST(Context, OtherExceptionsBecomeErrors) {
  run_in_process(
      2,
      [&](Context& context) {
        const Error standard =
            error_of([&] { context.on_all_ranks("w", [] { throw std::runtime_error("reason"); }); });
        EXPECT_EQ(standard.code(), ErrorCode::internal);
        EXPECT_STREQ(standard.what(), "w: reason");
        const Error memory = error_of([&] { context.root_only("w", [] { throw std::bad_alloc(); }); });
        EXPECT_STREQ(memory.what(), "w: out of memory");
        const Error other = error_of([&] { context.root_only("w", [] { throw 7; }); });
        EXPECT_EQ(other.code(), ErrorCode::internal);
      },
      test::on_hosts());
}

TEST(Context, BroadcastStringCarriesAnyBytesFromAnyRoot) {
  const std::string text = std::string("\0a\xff", 3) + std::string(100'000, 'x');
  run_in_process(
      4,
      [&](Context& context) {
        for (int root = 0; root < context.size(); ++root) {
          EXPECT_EQ(context.broadcast_string(context.rank() == root ? text : "", root), text);
          EXPECT_EQ(context.broadcast_string("", root), "");
        }
      },
      test::on_hosts());
}

// A rank that ends with an exception would leave the others waiting until the deadline.
TEST(Context, AnExceptionOfOneRankEndsTheOthersCollectives) {
  std::atomic<int> peer_failed{0};
  const auto body = [&](Context& context) {
    if (context.rank() == 2) throw std::logic_error("the first one");
    const Error error = error_of([&] { context.communicator().barrier(); });
    EXPECT_EQ(error.code(), ErrorCode::peer_failed);
    EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
    ++peer_failed;
    throw error;
  };
  try {
    run_in_process(4, body, test::on_hosts());
    FAIL() << "expected the exception of rank 2";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "the first one");
  }
  EXPECT_EQ(peer_failed.load(), 3);
}

// A rank that returns early would leave the others waiting until the deadline.
TEST(Context, ARankThatLeavesEndsTheCollectivesThatNeedIt) {
  const Error error = error_of([] {
    run_in_process(
        2,
        [](Context& context) {
          if (context.rank() == 0) context.communicator().barrier();
        },
        test::on_hosts());
  });
  EXPECT_EQ(error.code(), ErrorCode::peer_failed);
  EXPECT_NE(std::string(error.what()).find("rank 1 (host"), std::string::npos) << error.what();
}

// The message would not say which rank is missing in which collective.
TEST(Context, ATimeoutNamesTheCollectiveAndWhoIsMissing) {
  InProcessOptions options = test::on_hosts();
  options.context.deadline = std::chrono::milliseconds(100);
  options.hosts = {"alpha", "beta"};
  std::atomic<bool> timed_out{false};
  run_in_process(
      2,
      [&](Context& context) {
        context.communicator().barrier();
        if (context.rank() == 0) {
          std::vector<double> values(1000);
          const Error error = error_of([&] { context.communicator().all_reduce(std::span(values)); });
          EXPECT_EQ(error.code(), ErrorCode::timeout);
          const std::string text = error.what();
          for (const char* part : {"all_reduce #2", "8000 bytes", "on rank 0 (host alpha)",
                                   "rank 1 (host beta)", "DDL_DEADLINE"}) {
            EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in: " << text;
          }
          // The ranks' calls no longer match, so continuing would give wrong numbers.
          EXPECT_EQ(error_of([&] { context.communicator().barrier(); }).code(), ErrorCode::timeout);
          timed_out = true;
        } else {
          while (!timed_out) std::this_thread::yield();
        }
      },
      options);
}

// A rank that has not thrown an agreed error yet would report a peer's death instead.
TEST(Context, AgreedErrorsAreRethrownAsTheyAre) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    const Error error = error_of([] {
      run_in_process(
          4,
          [](Context& context) {
            context.on_all_ranks("step", [&] {
              if (context.rank() == 1) throw Error(ErrorCode::corrupt_data, "bad");
            });
          },
          test::on_hosts());
    });
    ASSERT_STREQ(error.what(), "step: rank 1: bad");
  }
}

// A script could not tell a wrong flag from a failed job.
TEST(Context, RunTurnsErrorsIntoExitStatuses) {
  Context context = Context::from_environment();
  EXPECT_EQ(context.run([] { return 5; }), 5);
  testing::internal::CaptureStderr();
  EXPECT_EQ(context.run([]() -> int { throw Error(ErrorCode::invalid_argument, "wrong flag"); }), 2);
  EXPECT_EQ(context.run([]() -> int { throw Error(ErrorCode::io, "no disk"); }), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ddl [0] error: wrong flag\nddl [0] error: no disk\n");
}

// Eight ranks would print the same message eight times.
TEST(Context, RunPrintsAnAgreedErrorOnce) {
  std::atomic<int> statuses{0};
  testing::internal::CaptureStderr();
  run_in_process(
      4,
      [&](Context& context) {
        statuses += context.run([&]() -> int {
          context.root_only("reading", [] { throw Error(ErrorCode::invalid_argument, "wrong"); });
          return 0;
        });
      },
      test::on_hosts());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ddl [0] error: reading: wrong\n");
  EXPECT_EQ(statuses.load(), 8);
}

TEST(Context, RunInProcessRefusesWhatCannotWork) {
  const auto nothing = [](Context&) {};
  EXPECT_EQ(error_of([&] { run_in_process(0, nothing); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { run_in_process(1025, nothing); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { run_in_process(2, nullptr); }).code(), ErrorCode::invalid_argument);
  InProcessOptions options = test::on_hosts();
  options.hosts = {"a"};
  EXPECT_EQ(error_of([&] { run_in_process(2, nothing, options); }).code(), ErrorCode::invalid_argument);
  options.hosts.clear();
  options.context.decomposition = "4x4";
  const Error wrong_product = error_of([&] { run_in_process(2, nothing, options); });
  EXPECT_EQ(wrong_product.code(), ErrorCode::invalid_argument);
  for (const char* part : {"-mode p:4x4", "invalid dim size", "16", "2 ranks"}) {
    EXPECT_NE(std::string(wrong_product.what()).find(part), std::string::npos)
        << part << " is missing in: " << wrong_product.what();
  }
}

std::string messages_of_a_job(const ContextOptions& context_options) {
  InProcessOptions options = test::on_hosts();
  options.context = context_options;
  testing::internal::CaptureStderr();
  run_in_process(
      4,
      [](Context& context) {
        for (int repeat = 0; repeat < 3; ++repeat) {
          std::vector<float> values(1'000, 1);
          context.communicator().all_reduce(std::span(values));
          EXPECT_EQ(values, std::vector<float>(1'000, 4));
          context.communicator().broadcast(std::span(values), 1);
        }
      },
      options);
  return testing::internal::GetCapturedStderr();
}

// Users could not see which plans a job uses, or every job would be noisy.
TEST(Context, PrintsEachPlanOnceAtLevelOneAndAllOfItAtLevelTwo) {
  ContextOptions options;
  EXPECT_EQ(messages_of_a_job(options), "");
  options.debug_level = 1;
  options.decomposition = "2x2";
  const std::string lines = messages_of_a_job(options);
  EXPECT_EQ(occurrences(lines, "ddl [0] info: plan: all_reduce 4096 B f32: 2x2"), 1U) << lines;
  EXPECT_EQ(occurrences(lines, "ddl [0] info: plan: broadcast 4096 B f32: 2x2"), 1U) << lines;
  EXPECT_EQ(occurrences(lines, "plan:"), 2U) << lines;
  options.debug_level = 2;
  const std::string all = messages_of_a_job(options);
  EXPECT_EQ(occurrences(all, "plan: all_reduce 4096 B f32: 2x2"), 1U) << all;
  EXPECT_GT(occurrences(all, "\n"), occurrences(lines, "\n"));
  EXPECT_EQ(occurrences(all, "ddl [0]"), occurrences(all, "\n")) << "lines without a head: " << all;
}

// The user would not notice that a requested mode is not used.
TEST(Context, AFallbackIsAWarningWithItsReason) {
  ContextOptions options;
  options.mode = topology::Mode::mpi;
  const std::string text = messages_of_a_job(options);
  EXPECT_EQ(occurrences(text, "warning"), 1U) << text;
  EXPECT_NE(text.find("this job has no MPI"), std::string::npos) << text;
  options.mode = topology::Mode::nccl;
  EXPECT_GE(occurrences(messages_of_a_job(options), "warning"), 1U);
}

// A plan from a file would not be the one that runs.
TEST(ContextOptions, RunsThePlansOfFiles) {
  const test::TemporaryDirectory directory;
  topology::Plan plan;
  plan.decomposition = topology::Decomposition({4}, {});
  plan.dimensions = {{topology::Algorithm::tree}};
  plan.order = {2, 3, 0, 1};
  topology::Plan broadcast = plan;
  broadcast.collective = topology::Collective::broadcast;
  broadcast.dimensions = {{topology::Algorithm::double_tree}};
  const std::string first = directory.path() / "a.json";
  const std::string second = directory.path() / "b.json";
  std::ofstream(first) << to_json(plan);
  std::ofstream(second) << to_json(broadcast);
  const Variable variable("DDL_PLAN", (first + "," + second).c_str());
  ContextOptions options = ContextOptions::from_environment();
  ASSERT_EQ(options.plans, (std::vector<topology::Plan>{plan, broadcast}));
  options.debug_level = 1;
  options.probe = ProbeUse::off;
  const std::string text = messages_of_a_job(options);
  EXPECT_NE(text.find("plan: all_reduce 4096 B f32: 4 as placed, tree"), std::string::npos) << text;
  EXPECT_NE(text.find("plan: broadcast 4096 B f32: 4 as placed, double_tree"), std::string::npos) << text;
}

TEST(ContextOptions, RefusesFilesThatAreNoPlans) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path() / "plan.json";
  std::ofstream(file) << "{\"collective\": 7}";
  for (const std::string& names : {file, directory.path().string(), file + "x", file + "," + file}) {
    const Variable variable("DDL_PLAN", names.c_str());
    const std::string text = error_of([] { ContextOptions::from_environment(); }).what();
    EXPECT_NE(text.find("DDL_PLAN"), std::string::npos) << text;
    EXPECT_NE(text.find(names.substr(0, names.find(','))), std::string::npos) << text;
  }
}

// A wrong topology would be noticed only in the first collective, or not at all.
TEST(Context, RefusesTopologiesThatDoNotFit) {
  InProcessOptions options = test::on_hosts();
  const auto nothing = [](Context&) {};
  options.context.topology = "host:3";
  const Error small = error_of([&] { run_in_process(4, nothing, options); });
  EXPECT_EQ(small.code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(small.what()).find("3 devices, but this job has 4 ranks"), std::string::npos);
  options.context.topology = "hots:4";
  const Error unknown = error_of([&] { run_in_process(4, nothing, options); });
  EXPECT_EQ(unknown.code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(unknown.what()).find("nearest preset is 'host'"), std::string::npos)
      << unknown.what();
}

// Data would silently take another path than the plan's, which makes every measurement wrong.
TEST(Context, FallbacksAreListedAndErrorsInStrictMode) {
  InProcessOptions options;
  options.context.topology = "ac922:1";  // whose devices are GPUs
  std::atomic<int> told = 0;
  const auto body = [&](Context& context) {
    EXPECT_TRUE(context.fallbacks().empty());
    std::vector<float> values(1000);
    context.communicator().all_reduce(std::span(values));
    context.communicator().all_reduce(std::span(values));
    const std::vector<std::string> fallbacks = context.fallbacks();
    ASSERT_EQ(fallbacks.size(), 1u);
    EXPECT_NE(fallbacks[0].find("this build moves data of CPUs alone"), std::string::npos) << fallbacks[0];
    ++told;
  };
  run_in_process(4, body, options);
  EXPECT_EQ(told, 4);
  options.context.strict = true;
  const Error error = error_of([&] { run_in_process(4, body, options); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(error.agreed());
  EXPECT_NE(std::string(error.what()).find("DDL_STRICT=1"), std::string::npos) << error.what();
}

// A mistyped setting would be ignored silently.
TEST(ContextOptions, RefusesBadVariables) {
  const std::vector<std::pair<const char*, const char*>> bad{
      {"DDL_DEADLINE", "soon"},
      {"DDL_DEADLINE", "-1"},
      {"DDL_DEADLINE", "nan"},
      {"DDL_DEADLINE", "10x"},
      {"DDL_PLAN", ""},
      {"DDL_PROBE", "maybe"},
      {"DDL_NETWORK", "carrier pigeon"},
      {"DDL_TOPOLOGY", ""},
      {"DDL_OPTIONS", "-mode x"},
      {"DDL_DEBUG_LEVEL", "loud"},
      {"DDL_DEBUG_LEVEL", "3"},
      {"DDL_HOST_ID", ""},
      {"DDL_STRICT", "yes"},
      {"DDL_STRICT", "2"},
      {"DDL_REPORT", ""},
  };
  for (const auto& [name, value] : bad) {
    const Variable variable(name, value);
    const Error error = error_of([] { ContextOptions::from_environment(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(value), std::string::npos) << error.what();
  }
}

TEST(ContextOptions, ReadsVariables) {
  const Variable deadline("DDL_DEADLINE", "1.5");
  const Variable host("DDL_HOST_ID", "h7");
  const Variable given("DDL_OPTIONS", "-mode r:2x2");
  const Variable topology("DDL_TOPOLOGY", "ac922:4");
  const Variable network("DDL_NETWORK", "mpi");
  const Variable level("DDL_DEBUG_LEVEL", "2");
  const Variable strict("DDL_STRICT", "1");
  const Variable report("DDL_REPORT", "/tmp/r");
  const ContextOptions options = ContextOptions::from_environment();
  EXPECT_EQ(options.deadline, std::chrono::milliseconds(1500));
  EXPECT_EQ(options.host_id, "h7");
  EXPECT_EQ(options.mode, topology::Mode::rings);
  EXPECT_EQ(options.decomposition, "2x2");
  EXPECT_EQ(options.topology, "ac922:4");
  EXPECT_EQ(options.network, NetworkUse::mpi);
  EXPECT_EQ(options.probe, ProbeUse::cached);
  EXPECT_EQ(options.debug_level, 2);
  EXPECT_TRUE(options.strict);
  EXPECT_EQ(options.report, "/tmp/r");
  const Variable overriding("DDL_OPTIONS", "-dbg_level 1");
  EXPECT_EQ(ContextOptions::from_environment().debug_level, 1);
}

TEST(ContextOptions, FiguresAreKeptWhereTheEnvironmentSays) {
  const Variable no_home("HOME", std::nullopt);
  const auto directory = [] { return ContextOptions::from_environment().cache_directory; };
  {
    const Variable cache("DDL_CACHE_DIR", "/d");
    const Variable caches("XDG_CACHE_HOME", "/x");
    EXPECT_EQ(directory(), "/d");
  }
  {
    const Variable caches("XDG_CACHE_HOME", "/x");
    EXPECT_EQ(directory(), "/x/ddl");
  }
  {
    const Variable somewhere("HOME", "/h");
    EXPECT_EQ(directory(), "/h/.cache/ddl");
  }
  EXPECT_EQ(directory(), "") << "without HOME";
}

}  // namespace
}  // namespace ddl
