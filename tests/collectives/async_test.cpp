// Asynchronous collectives. Otherwise a trainer that overlaps communication with computation would hang, or
// continue before its data have arrived.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/error.hpp"
#include "support/job_options.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

template <typename Body>
bool throws(const Body& body) {
  try {
    body();
    return false;
  } catch (const Error&) {
    return true;
  }
}

using test::error_of;

float expected_sum(int ranks, std::size_t call) {
  return static_cast<float>(ranks * (ranks - 1) / 2 + ranks * static_cast<int>(call % 10));
}

// Calls would be lost if more are started than run at a time, or while plans of new sizes are compared.
TEST(Async, ManyCallsInFlightEndRight) {
  run_in_process(
      4,
      [](Context& context) {
        Communicator& c = context.communicator();
        constexpr std::size_t calls = 300;
        std::vector<std::vector<float>> values;
        std::vector<Work> works;
        for (std::size_t i = 0; i < calls; ++i) {
          values.emplace_back(i * 37 % 2000, static_cast<float>(c.rank() + static_cast<int>(i % 10)));
        }
        for (auto& v : values) works.push_back(c.all_reduce_async(std::span(v)));
        for (std::size_t i = calls; i-- > 0;) works[i].wait();
        for (std::size_t i = 0; i < calls; ++i) {
          ASSERT_EQ(values[i], std::vector<float>(values[i].size(), expected_sum(c.size(), i)))
              << "call " << i;
        }
      },
      test::on_hosts({"a", "b", "a", "b"}));
}

// Blocking calls would overtake calls that were started before them, or wait forever.
TEST(Async, BlockingCallsMayComeBetween) {
  run_in_process(
      3,
      [](Context& context) {
        Communicator& c = context.communicator();
        for (std::size_t i = 0; i < 60; ++i) {
          std::vector<float> first(5 + 100 * i, static_cast<float>(c.rank()));
          std::vector<float> second(7 + 90 * i, static_cast<float>(c.rank()));
          Work work = c.all_reduce_async(std::span(first));
          c.all_reduce(std::span(second), ReduceOp::max);
          c.barrier();
          work.wait();
          ASSERT_EQ(first, std::vector<float>(first.size(), 3));
          ASSERT_EQ(second, std::vector<float>(second.size(), 2));
        }
      },
      test::on_hosts());
}

// Ranks that start collectives of two communicators in different orders, which the API allows, would hang.
TEST(Async, AnyOrderAcrossCommunicators) {
  run_in_process(
      4,
      [](Context& context) {
        Communicator& whole = context.communicator();
        Communicator copy = whole.split(0, whole.rank());
        Communicator reversed = whole.split(0, -whole.rank());
        std::array<Communicator*, 3> all{&whole, &copy, &reversed};
        for (std::size_t round = 0; round < 40; ++round) {
          // Each round has another size class, so that first uses of plans are covered.
          const std::size_t count = 30 + round * round * 20;
          std::array<std::vector<double>, 3> values;
          std::array<Work, 3> works;
          for (int i = 0; i < 3; ++i) {
            const auto which = static_cast<std::size_t>((i + whole.rank()) % 3);
            values[which].assign(count, static_cast<double>(which + 1));
            works[which] = all[which]->all_reduce_async(std::span(values[which]));
          }
          for (int i = 0; i < 3; ++i) works[static_cast<std::size_t>((i + round) % 3)].wait();
          for (std::size_t which = 0; which < 3; ++which) {
            ASSERT_EQ(values[which], std::vector<double>(count, 4.0 * static_cast<double>(which + 1)));
          }
        }
      },
      test::on_hosts({"a", "a", "b", "b"}));
}

// Threads of a program that each use their own communicator would mix up data.
TEST(Async, ThreadsCallAtOnceOnDifferentCommunicators) {
  run_in_process(
      3,
      [](Context& context) {
        constexpr int threads = 4;
        std::vector<Communicator> own;
        for (int i = 0; i < threads; ++i) own.push_back(context.communicator().split(0));
        std::vector<std::thread> running;
        std::atomic<int> wrong{0};
        for (int t = 0; t < threads; ++t) {
          running.emplace_back([&, t] {
            Communicator& c = own[static_cast<std::size_t>(t)];
            for (std::size_t i = 0; i < 60; ++i) {
              std::vector<std::int32_t> values(1 + i * 40, t + 1);
              if (i % 3 == 0) {
                c.all_reduce_async(std::span(values)).wait();
              } else {
                c.all_reduce(std::span(values));
              }
              wrong +=
                  static_cast<int>(std::ranges::count_if(values, [&](int x) { return x != 3 * (t + 1); }));
            }
          });
        }
        for (std::thread& thread : running) thread.join();
        EXPECT_EQ(wrong, 0);
      },
      test::on_hosts());
}

// A trainer that polls would never see the completion, or would block.
TEST(Work, TestTurnsTrueWithoutWaiting) {
  std::atomic<bool> looked{false};
  run_in_process(
      2,
      [&](Context& context) {
        Communicator& c = context.communicator();
        float value = 1;
        if (context.rank() == 0) {
          Work work = c.all_reduce_async(std::span(&value, 1));
          EXPECT_FALSE(work.test()) << "done though rank 1 has not come";
          looked = true;
          while (!work.test()) std::this_thread::yield();
          EXPECT_TRUE(work.test());
          work.wait();
        } else {
          while (!looked) std::this_thread::yield();
          c.all_reduce(std::span(&value, 1));
        }
        EXPECT_EQ(value, 2);
      },
      test::on_hosts());
}

TEST(Work, ADefaultOneIsDone) {
  Work work;
  EXPECT_TRUE(work.test());
  work.wait();
  bool called = false;
  work.then([&](const Error* error) { called = error == nullptr; });
  EXPECT_TRUE(called);
}

// Several threads could not wait for copies of one handle.
TEST(Work, SeveralThreadsMayWait) {
  run_in_process(
      2,
      [](Context& context) {
        Communicator& c = context.communicator();
        std::vector<float> values(5'000, 1);
        const Work work = c.all_reduce_async(std::span(values));
        std::vector<std::thread> waiting;
        for (int i = 0; i < 3; ++i) {
          waiting.emplace_back([copy = work]() mutable { copy.wait(); });
        }
        for (std::thread& thread : waiting) thread.join();
        EXPECT_EQ(values, std::vector<float>(5'000, 2));
      },
      test::on_hosts());
}

// Chains of collectives for which no thread of the program waits would stop.
TEST(Work, AContinuationMayStartTheNextCollective) {
  run_in_process(
      3,
      [](Context& context) {
        Communicator& c = context.communicator();
        constexpr int links = 50;
        std::vector<std::int64_t> values(40, 1);
        std::promise<void> over;
        int done = 0;
        std::function<void(const Error*)> next = [&](const Error* error) {
          if (error != nullptr) return over.set_exception(std::make_exception_ptr(Error(*error)));
          if (++done == links) return over.set_value();
          std::ranges::fill(values, done);
          // Sometimes another size, whose plan must be compared first.
          const std::size_t count = done % 5 == 0 ? 40 : 10;
          c.all_reduce_async(values.data(), values.data(), count, DataType::i64, ReduceOp::sum).then(next);
        };
        c.all_reduce_async(std::span(values)).then(next);
        over.get_future().get();
        EXPECT_EQ(values[0], 3 * (links - 1));
        EXPECT_EQ(done, links);
      },
      test::on_hosts());
}

// A waiting thread that gets no error would continue with wrong data or hang.
TEST(Work, AnErrorReachesEveryoneWhoWaits) {
  InProcessOptions options = test::on_hosts();
  options.context.deadline = std::chrono::milliseconds(200);
  std::atomic<bool> over{false};
  run_in_process(
      2,
      [&](Context& context) {
        Communicator& c = context.communicator();
        c.barrier();
        if (context.rank() == 1) {
          while (!over) std::this_thread::yield();
          return;
        }
        std::vector<float> first(1'000);
        std::vector<float> second(2'000);
        Work missing = c.all_reduce_async(std::span(first));
        Work queued = c.all_reduce_async(std::span(second));
        std::atomic<int> told{0};
        missing.then([&](const Error* error) { told += error != nullptr ? 1 : 0; });
        queued.then([&](const Error* error) { told += error != nullptr ? 1 : 0; });
        for (int i = 0; i < 2; ++i) {
          const Error error = error_of([&] { missing.wait(); });
          EXPECT_EQ(error.code(), ErrorCode::timeout);
          EXPECT_NE(std::string(error.what()).find("all_reduce #2 (sum of 1000 f32"), std::string::npos)
              << error.what();
          error_of([&] { static_cast<void>(missing.test()); });
          error_of([&] { queued.wait(); });
        }
        while (told < 2) std::this_thread::yield();
        missing.then([&](const Error* error) { told += error != nullptr ? 1 : 0; });
        EXPECT_EQ(told, 3) << "a continuation of what has failed already is called at once";
        // Calls that are started after the failure fail too.
        error_of([&] { c.all_reduce_async(std::span(first)).wait(); });
        over = true;
      },
      options);
}

// A rank would wait forever for one of several calls in flight when ranks turn out to differ. Which calls the
// engine runs together is random, so the test repeats.
TEST(Async, EveryCallEndsWhereOneDiffers) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::atomic<bool> is_called = false;
    EXPECT_THROW(run_in_process(2,
                                [&](Context& context) {
                                  Communicator& all = context.communicator();
                                  std::vector<float> values(64);
                                  all.all_reduce(std::span(values));  // so that the plan is agreed on
                                  if (context.rank() == 1) {
                                    is_called = true;
                                    all.barrier();
                                    return;
                                  }
                                  while (!is_called) std::this_thread::yield();
                                  std::vector<std::vector<float>> each(16, values);
                                  std::vector<Work> works;
                                  for (auto& one : each)
                                    works.push_back(all.all_reduce_async(std::span(one)));
                                  int errors = 0;
                                  for (Work& work : works) errors += throws([&] { work.wait(); });
                                  EXPECT_EQ(errors, 16);
                                  works.front().wait();
                                }),
                 Error);
  }
}

// A different call would be found only after the deadline.
TEST(Async, ADifferentCallIsAMismatchOnEveryRank) {
  std::atomic<int> mismatches{0};
  std::atomic<int> ended{0};
  const Error error = error_of([&] {
    run_in_process(
        3,
        [&](Context& context) {
          std::vector<float> values(context.rank() == 1 ? 100'000 : 10);
          Work work = context.communicator().all_reduce_async(std::span(values));
          Work next = context.communicator().all_reduce_async(std::span(values));
          const Error found = error_of([&] { work.wait(); });
          if (found.code() == ErrorCode::mismatch) ++mismatches;
          error_of([&] { next.wait(); });
          ++ended;
          while (ended < 3)
            std::this_thread::yield();  // a rank that leaves with an error ends the other ranks' calls
          throw found;
        },
        test::on_hosts());
  });
  EXPECT_EQ(mismatches, 3);
  EXPECT_NE(std::string(error.what()).find("another rank called something else"), std::string::npos);
}

// If no handle is kept, a rank that leaves would never finish its part of calls, and the others would hang.
TEST(Async, LeavingTheJobWaitsForWhatWasStarted) {
  constexpr std::size_t count = 30'000;
  constexpr std::size_t calls = 6;
  std::array<std::vector<float>, 3> values;  // outlive the ranks
  for (auto& v : values) v.assign(calls * count, 1);
  run_in_process(
      3,
      [&](Context& context) {
        float* data = values[static_cast<std::size_t>(context.rank())].data();
        Communicator part = context.communicator().split(0);
        for (std::size_t i = 0; i < calls; ++i, data += count) {
          Communicator& c = i % 2 == 0 ? context.communicator() : part;
          c.all_reduce_async(data, data, i % 3 == 0 ? count : count / 3, DataType::f32, ReduceOp::sum);
          c.barrier_async();
        }
      },
      test::on_hosts());
  for (const auto& v : values) {
    for (std::size_t i = 0; i < calls; ++i) {
      const std::size_t reduced = i % 3 == 0 ? count : count / 3;
      EXPECT_EQ(std::accumulate(&v[i * count], &v[i * count] + reduced, 0.0),
                3.0 * static_cast<double>(reduced));
    }
  }
}

}  // namespace
}  // namespace ddl
