// broadcast and barrier among in-process ranks. Without broadcast, ranks would train different models;
// without barrier, a rank would read data that another has not written yet.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "support/job_options.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

std::vector<std::int32_t> numbers(std::size_t count, int root) {
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::int32_t>(i) * 31 + root;
  return values;
}

TEST(Broadcast, ReachesEveryRankFromAnyRoot) {
  const std::vector<std::vector<std::string>> maps{
      std::vector<std::string>(1, "a"),
      std::vector<std::string>(2, "a"),
      std::vector<std::string>(7, "a"),
      {"a", "b", "a", "b"},
      {"a", "a", "a", "b"},
      {"a", "a", "a", "a", "a", "b", "b", "c"},
  };
  for (const auto& hosts : maps) {
    run_in_process(
        static_cast<int>(hosts.size()),
        [](Context& context) {
          for (int root = 0; root < context.size(); ++root) {
            for (const std::size_t count : {0, 1, 5, 1000, 16'384, 16'385, 300'007}) {
              const std::vector<std::int32_t> expected = numbers(count, root);
              std::vector<std::int32_t> values(count, -1);
              if (context.rank() == root) values = expected;
              context.communicator().broadcast(std::span(values), root);
              ASSERT_EQ(values, expected)
                  << "root " << root << ", rank " << context.rank() << ", count " << count;
            }
          }
        },
        test::on_hosts(hosts));
  }
}

TEST(Broadcast, ReachesSixtyFourRanks) {
  run_in_process(
      64,
      [](Context& context) {
        for (const int root : {0, 1, 63}) {
          for (const std::size_t count : {1, 100'003}) {
            const std::vector<std::int32_t> expected = numbers(count, root);
            std::vector<std::int32_t> values(count, -1);
            if (context.rank() == root) values = expected;
            context.communicator().broadcast(std::span(values), root);
            ASSERT_EQ(values, expected);
          }
        }
      },
      test::on_hosts({}));
}

TEST(Broadcast, RefusesAnUnknownRoot) {
  run_in_process(
      2,
      [](Context& context) {
        int value = 1;
        for (const int root : {-1, 2}) {
          test::expect_error(ErrorCode::invalid_argument, {fmt::format("root {}", root)},
                             [&] { context.communicator().broadcast(std::span(&value, 1), root); });
        }
        context.communicator().barrier();
      },
      test::on_hosts({}));
}

TEST(Barrier, NobodyLeavesBeforeEverybodyHasCome) {
  for (const int ranks : {1, 2, 3, 8, 64}) {
    std::atomic<int> arrived{0};
    run_in_process(
        ranks,
        [&](Context& context) {
          for (int round = 1; round <= 20; ++round) {
            ++arrived;
            context.communicator().barrier();
            ASSERT_GE(arrived.load(), round * ranks);
            context.communicator().barrier();
          }
        },
        test::on_hosts({}));
  }
}

}  // namespace
}  // namespace ddl
