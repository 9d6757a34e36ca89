// Communicators of some of the ranks. Otherwise ranks of different communicators would mix up their data.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "ddl/context.hpp"
#include "support/job_options.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::error_of;

std::vector<int> members_of(Communicator& c, int rank_in_job) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(c.size()));
  const std::int32_t own = rank_in_job;
  c.all_gather(&own, all.data(), 1, DataType::i32);
  return {all.begin(), all.end()};
}

TEST(Split, ByColorThenKeyThenRank) {
  run_in_process(
      6,
      [](Context& context) {
        Communicator& whole = context.communicator();
        const int rank = context.rank();
        Communicator rows = whole.split(rank / 3);
        EXPECT_EQ(members_of(rows, rank), rank < 3 ? (std::vector{0, 1, 2}) : (std::vector{3, 4, 5}));
        EXPECT_EQ(rows.rank(), rank % 3);
        EXPECT_EQ(rows.rank_map().hosts(), rank < 3 ? 2 : 1);
        Communicator columns = whole.split(rank % 3, -rank);
        EXPECT_EQ(members_of(columns, rank), (std::vector{rank % 3 + 3, rank % 3}));
        Communicator alone = whole.split(rank * 1000);
        EXPECT_EQ(alone.size(), 1);
        EXPECT_EQ(members_of(alone, rank), std::vector{rank});
        // A split of a part of the ranks, while the whole communicator is in use.
        Communicator pair = rows.split(rank % 3 == 0 ? 1 : 0, rank == 1 ? 5 : 4);
        const std::vector<std::vector<int>> pairs{{0}, {2, 1}, {2, 1}, {3}, {4, 5}, {4, 5}};
        EXPECT_EQ(members_of(pair, rank), pairs[static_cast<std::size_t>(rank)]);
        for (int repeat = 0; repeat < 20; ++repeat) {
          std::vector<float> values(500, static_cast<float>(rank));
          columns.all_reduce(std::span(values));
          EXPECT_EQ(values[7], static_cast<float>(2 * (rank % 3) + 3));
          whole.all_reduce(std::span(values), ReduceOp::max);
          EXPECT_EQ(values[7], 7);
          rows.broadcast(values, 2);
          whole.barrier();
        }
      },
      test::on_hosts({"a", "a", "b", "b", "b", "b"}));
}

// A job that makes communicators in each epoch would run out of communicator numbers.
TEST(Split, NumbersAreUsedAgain) {
  constexpr int more_than_there_are = 40'000;
  run_in_process(
      2,
      [](Context& context) {
        Communicator kept = context.communicator().split(0);
        for (int i = 0; i < more_than_there_are; ++i) {
          Communicator part = context.communicator().split(0);
          if (i % 5000 != 0) continue;
          Work work;
          std::int64_t sum = i;
          {
            Communicator dropped = context.communicator().split(0, -context.rank());
            work = dropped.all_reduce_async(std::span(&sum, 1));
          }
          part.barrier();
          work.wait();
          EXPECT_EQ(sum, 2 * i);
        }
        std::int32_t one = 1;
        kept.all_reduce(std::span(&one, 1));
        EXPECT_EQ(one, 2);
      },
      test::on_hosts({}));
}

// A subgroup whose ranks can agree otherwise (by MPI's communicators, for instance) would need all other
// ranks.
TEST(Subgroup, IsMadeByItsRanksAlone) {
  run_in_process(
      5,
      [](Context& context) {
        const int rank = context.rank();
        Communicator helper = context.communicator().split(rank % 2);
        const auto greatest = [&](std::int64_t value) {
          helper.all_reduce(std::span(&value, 1), ReduceOp::max);
          return value;
        };
        const std::vector<int> odd{3, 1};
        const std::vector<int> even{4, 0, 2};
        const std::vector<int>& own = rank % 2 == 1 ? odd : even;
        for (int repeat = 0; repeat < (rank % 2 == 1 ? 7 : 3); ++repeat) {  // other ranks do not take part
          Communicator part = context.communicator().subgroup(own, greatest);
          EXPECT_EQ(members_of(part, rank), own);
        }
        context.communicator().barrier();
      },
      test::on_hosts({"a", "a", "b", "b", "b"}));
}

TEST(Subgroup, BadListsAreRefused) {
  run_in_process(2, [](Context& context) {
    const auto subgroup = [&](std::vector<int> ranks) {
      return error_of([&] {
        static_cast<void>(context.communicator().subgroup(ranks, [](std::int64_t value) { return value; }));
      });
    };
    const int rank = context.rank();
    EXPECT_NE(std::string(subgroup({0, 2}).what())
                  .find("found rank 2 in the list, expected different ranks of 0 to 1"),
              std::string::npos);
    EXPECT_NE(std::string(subgroup({1, 1, 0}).what()).find("found rank 1 twice"), std::string::npos);
    EXPECT_NE(
        std::string(subgroup({1 - rank}).what()).find(fmt::format("this rank, {}, is not in the list", rank)),
        std::string::npos);
  });
}

// Plans would be for the wrong devices and slow, or for another number of ranks and wrong.
TEST(Split, PlansAreForTheMembersPlaces) {
  InProcessOptions options = test::on_hosts({"a", "b", "a", "b"});
  options.context.decomposition = "2x2";
  run_in_process(
      4,
      [](Context& context) {
        Communicator& whole = context.communicator();
        Communicator host = whole.split(context.rank() % 2);
        const topology::Plan inside = host.plan(topology::Collective::all_reduce, 1 << 20, DataType::f32);
        EXPECT_EQ(inside.decomposition.ranks(), 2);
        Communicator across = whole.split(context.rank() / 2);
        const topology::Plan between = across.plan(topology::Collective::all_reduce, 1 << 20, DataType::f32);
        EXPECT_EQ(between.dimensions[0].carrier, topology::Carrier::network);
        EXPECT_EQ(inside.dimensions[0].carrier, topology::Carrier::shared_memory);
        EXPECT_GT(between.predicted_us, inside.predicted_us);
        // A communicator of all ranks in their order still uses the requested grid.
        Communicator copy = whole.split(0);
        EXPECT_EQ(to_string(copy.plan(topology::Collective::all_reduce, 4096, DataType::f32).decomposition),
                  to_string(whole.plan(topology::Collective::all_reduce, 4096, DataType::f32).decomposition));
      },
      options);
}

TEST(Split, ANegativeColorIsAnErrorOnEveryRank) {
  std::atomic<int> caught{0};
  run_in_process(
      3,
      [&](Context& context) {
        const Error error =
            error_of([&] { static_cast<void>(context.communicator().split(context.rank() == 1 ? -7 : 0)); });
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_TRUE(error.agreed());
        EXPECT_NE(std::string(error.what()).find("color -7 on rank 1"), std::string::npos) << error.what();
        ++caught;
        context.communicator().barrier();
      },
      test::on_hosts({"a", "a", "a"}));
  EXPECT_EQ(caught, 3);
}

// Two threads that concurrently split different communicators of the same ranks would get the same number.
TEST(Split, ThreadsThatSplitAtOnceGetDifferentCommunicators) {
  run_in_process(
      3,
      [](Context& context) {
        constexpr std::size_t threads = 3;
        std::vector<Communicator> parents;
        for (std::size_t t = 0; t < threads; ++t) parents.push_back(context.communicator().split(0));
        std::atomic<int> wrong{0};
        std::vector<std::thread> running;
        for (std::size_t t = 0; t < threads; ++t) {
          running.emplace_back([&, t] {
            std::vector<Communicator> children;
            for (int i = 0; i < 8; ++i) {
              children.push_back(parents[t].split(0));
              std::vector<double> values(3000, static_cast<double>(t));
              Work work = children.back().all_reduce_async(std::span(values));
              double one = static_cast<double>(t);
              children.front().all_reduce(std::span(&one, 1));
              work.wait();
              if (values != std::vector<double>(3000, 3.0 * static_cast<double>(t))) ++wrong;
              if (one != 3.0 * static_cast<double>(t)) ++wrong;
            }
          });
        }
        for (std::thread& thread : running) thread.join();
        EXPECT_EQ(wrong, 0);
      },
      test::on_hosts({"a", "b", "a"}));
}

// A program that splits in every step would eventually mix up messages.
TEST(Split, ManyCommunicatorsOneAfterTheOther) {
  run_in_process(
      2,
      [](Context& context) {
        for (int i = 0; i < 300; ++i) {
          Communicator c = context.communicator().split(0, context.rank());
          int value = i;
          c.all_reduce(std::span(&value, 1));
          ASSERT_EQ(value, 2 * i);
        }
      },
      test::on_hosts({"a", "a"}));
}

// A communicator that is used after its context would access freed memory.
TEST(Split, IsRefusedOnceTheContextIsGone) {
  std::vector<Communicator> kept;
  {
    Context context = Context::from_environment();
    kept.push_back(context.communicator().split(0));
    kept.back().barrier();
  }
  const Error error = error_of([&] { kept.back().barrier(); });
  EXPECT_EQ(error.code(), ErrorCode::transport);
  EXPECT_NE(std::string(error.what()).find("context has been destroyed"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace ddl
