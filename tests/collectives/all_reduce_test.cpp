// all_reduce among in-process ranks, against a serial result in fp64. Otherwise gradients would be wrong, or
// differ between ranks.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "support/job_options.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

InProcessOptions options_for(std::vector<std::string> hosts, topology::Mode mode = topology::Mode::explore) {
  InProcessOptions options = test::on_hosts(std::move(hosts));
  options.context.mode = mode;
  return options;
}

/// Integers that differ between ranks and elements, so small that every type represents every result of up to
/// 64 ranks exactly.
std::int64_t contribution(ReduceOp op, int rank, std::size_t i) {
  const auto r = static_cast<std::size_t>(rank);
  if (op == ReduceOp::prod) return (i + r) % 13 == 0 && rank < 7 ? 2 : 1;
  return static_cast<std::int64_t>((i * 7 + r * 5 + i / 1000) % 4);
}

std::vector<double> serial_result(ReduceOp op, int ranks, std::size_t count, bool integer) {
  std::vector<double> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    double value = static_cast<double>(contribution(op, 0, i));
    for (int rank = 1; rank < ranks; ++rank) {
      const auto next = static_cast<double>(contribution(op, rank, i));
      switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg:
          value += next;
          break;
        case ReduceOp::min:
          value = std::min(value, next);
          break;
        case ReduceOp::max:
          value = std::max(value, next);
          break;
        case ReduceOp::prod:
          value *= next;
          break;
      }
    }
    if (op == ReduceOp::avg) value = integer ? std::trunc(value / ranks) : value / ranks;
    result[i] = value;
  }
  return result;
}

template <Element T>
std::vector<std::vector<T>> reduce_in_process(int ranks, std::size_t count, ReduceOp op,
                                              const InProcessOptions& options) {
  std::vector<std::vector<T>> values(static_cast<std::size_t>(ranks), std::vector<T>(count));
  run_in_process(
      ranks,
      [&](Context& context) {
        auto& mine = values[static_cast<std::size_t>(context.rank())];
        for (std::size_t i = 0; i < count; ++i) mine[i] = static_cast<T>(contribution(op, context.rank(), i));
        context.communicator().all_reduce(std::span(mine), op);
      },
      options);
  return values;
}

template <Element T>
void expect_right(int ranks, std::size_t count, ReduceOp op, const InProcessOptions& options) {
  SCOPED_TRACE(fmt::format("{} ranks, {} {}, {}", ranks, count, to_string(data_type_of<T>()), to_string(op)));
  const auto values = reduce_in_process<T>(ranks, count, op, options);
  const std::vector<double> expected = serial_result(op, ranks, count, std::is_integral_v<T>);
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(values[0][i], static_cast<T>(expected[i])) << "element " << i;
  }
  for (const auto& others : values) ASSERT_EQ(others, values[0]);
}

template <Element T>
void expect_all_operations_right(int ranks, std::size_t count, const InProcessOptions& options) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::prod}) {
    ASSERT_NO_FATAL_FAILURE(expect_right<T>(ranks, count, op, options));
  }
}

TEST(AllReduce, EveryCountFromOneTo64Ranks) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    run_in_process(
        ranks,
        [&](Context& context) {
          for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{31},
                                          std::size_t{997}, n - 1, n, n + 1}) {
            std::vector<float> values(count);
            for (std::size_t i = 0; i < count; ++i) {
              values[i] = static_cast<float>(contribution(ReduceOp::sum, context.rank(), i));
            }
            context.communicator().all_reduce(std::span(values));
            const std::vector<double> expected = serial_result(ReduceOp::sum, ranks, count, false);
            ASSERT_TRUE(std::equal(values.begin(), values.end(), expected.begin(), expected.end()))
                << ranks << " ranks, count " << count << ", rank " << context.rank();
          }
        },
        options_for({}));
  }
}

TEST(AllReduce, AMillionAndThreeElements) {
  for (const int ranks : {1, 2, 3, 7, 16, 64}) {
    ASSERT_NO_FATAL_FAILURE(expect_right<float>(ranks, 1'000'003, ReduceOp::sum, options_for({})));
  }
}

TEST(AllReduce, EveryTypeAndOperation) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{10'007}}) {
      const InProcessOptions options = options_for({});
      ASSERT_NO_FATAL_FAILURE(expect_all_operations_right<std::uint8_t>(ranks, count, options));
      ASSERT_NO_FATAL_FAILURE(expect_all_operations_right<std::int32_t>(ranks, count, options));
      ASSERT_NO_FATAL_FAILURE(expect_all_operations_right<std::int64_t>(ranks, count, options));
      ASSERT_NO_FATAL_FAILURE(expect_all_operations_right<float>(ranks, count, options));
      ASSERT_NO_FATAL_FAILURE(expect_all_operations_right<double>(ranks, count, options));
    }
  }
}

TEST(AllReduce, EveryHostMapAndMode) {
  const std::vector<std::vector<std::string>> maps{
      {"a", "a", "b", "b"},
      {"a", "b", "a", "b"},
      {"a", "a", "a", "b"},
      {"a", "a", "a", "a", "a", "b", "b", "c"},
      {"a", "b", "c", "a", "b", "c", "a", "b", "c", "a", "b", "c"},
      {"a", "b", "c", "d", "e"},
  };
  for (const auto& hosts : maps) {
    const int ranks = static_cast<int>(hosts.size());
    const auto n = hosts.size();
    for (const topology::Mode mode :
         {topology::Mode::explore, topology::Mode::rings, topology::Mode::scatter_gather}) {
      SCOPED_TRACE(fmt::format("{} ranks, last host {}, mode {}", ranks, hosts.back(), to_string(mode)));
      const InProcessOptions options = options_for(hosts, mode);
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, n - 1, n, n + 1, std::size_t{4999}, std::size_t{250'007}}) {
        ASSERT_NO_FATAL_FAILURE(expect_right<float>(ranks, count, ReduceOp::sum, options));
      }
      ASSERT_NO_FATAL_FAILURE(expect_all_operations_right<std::int32_t>(ranks, 1009, options));
      ASSERT_NO_FATAL_FAILURE(expect_right<float>(ranks, 1009, ReduceOp::avg, options));
    }
  }
}

// The last bits of sums of fractions depend on the order of additions. They would differ between ranks, or
// exceed the error bound that holds for every order.
TEST(AllReduce, FractionsAgreeBitForBitAndStayWithinTheErrorBound) {
  constexpr std::size_t count = 20'011;
  constexpr int ranks = 7;
  const InProcessOptions options = options_for({"a", "b", "a", "b", "b", "a", "b"});
  std::vector<std::vector<float>> values(ranks, std::vector<float>(count));
  std::vector<double> sum(count, 0);
  std::vector<double> magnitude(count, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::size_t i = 0; i < count; ++i) {
      const float x = uniform(random);
      values[static_cast<std::size_t>(rank)][i] = x;
      sum[i] += x;
      magnitude[i] += std::abs(x);
    }
  }
  const auto inputs = values;
  const auto reduce = [&] {
    run_in_process(
        ranks,
        [&](Context& context) {
          context.communicator().all_reduce(std::span(values[static_cast<std::size_t>(context.rank())]));
        },
        options);
  };
  reduce();
  for (std::size_t i = 0; i < count; ++i) {
    const double bound = (ranks - 1) * 0x1p-24 * magnitude[i] * 1.01;
    ASSERT_TRUE(std::abs(values[0][i] - sum[i]) <= bound) << values[0][i] << " is not " << sum[i];
  }
  for (const auto& others : values) {
    ASSERT_EQ(std::memcmp(others.data(), values[0].data(), count * sizeof(float)), 0);
  }
  // A second run gives the same bits; otherwise a resumed training run could not be compared.
  const auto first = values;
  values = inputs;
  reduce();
  EXPECT_EQ(values, first);
}

// A rank that has diverged would be hidden from the others.
TEST(AllReduce, NotANumberReachesEveryRank) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::prod}) {
    for (int bad = 0; bad < 3; ++bad) {
      run_in_process(
          3,
          [&](Context& context) {
            std::vector<float> values(50, 1.0F);
            if (context.rank() == bad) values[17] = std::numeric_limits<float>::quiet_NaN();
            context.communicator().all_reduce(std::span(values), op);
            for (std::size_t i = 0; i < values.size(); ++i) {
              EXPECT_EQ(std::isnan(values[i]), i == 17) << to_string(op) << ", element " << i;
            }
          },
          options_for({}));
    }
  }
}

// A trainer that calls several sizes and types in turn, thousands of times, would hang or get wrong sums.
TEST(AllReduce, ManyCallsInARowStayInStep) {
  run_in_process(
      5,
      [](Context& context) {
        const int n = context.size();
        for (int step = 0; step < 300; ++step) {
          std::vector<std::uint8_t> bytes(static_cast<std::size_t>(step % 11), 1);
          std::vector<double> numbers(static_cast<std::size_t>(step * 3), step);
          context.communicator().all_reduce(std::span(bytes));
          context.communicator().all_reduce(std::span(numbers), ReduceOp::max);
          context.communicator().all_reduce(std::span(numbers));
          ASSERT_TRUE(std::all_of(bytes.begin(), bytes.end(), [&](int b) { return b == n; }));
          ASSERT_TRUE(std::all_of(numbers.begin(), numbers.end(), [&](double x) { return x == n * step; }));
        }
      },
      options_for({"a", "a", "b", "b", "b"}));
}

// Programs with more sizes than the cache of programs holds would get wrong sums.
TEST(AllReduce, MoreSizesThanAreRemembered) {
  run_in_process(
      2,
      [](Context& context) {
        constexpr std::size_t sizes = 700;
        for (std::size_t step = 0; step < 3 * sizes; ++step) {
          const std::size_t count = step % 2 == 0 ? step % sizes + 1 : sizes - step % sizes;
          std::vector<std::int32_t> numbers(count + 1, static_cast<std::int32_t>(step));
          const auto target = std::span(numbers).first(count);
          if (step % 3 == 0) context.communicator().broadcast(target, static_cast<int>(step % 2));
          context.communicator().all_reduce(target);
          const auto expected = static_cast<std::int32_t>(2 * step);
          ASSERT_TRUE(std::ranges::all_of(target, [&](std::int32_t x) { return x == expected; })) << count;
          ASSERT_EQ(numbers.back(), static_cast<std::int32_t>(step));
        }
      },
      options_for({}));
}

// A caller's mistake would crash, or leave the other ranks waiting.
TEST(AllReduce, RefusesNullDataAndKeepsTheCommunicatorUsable) {
  run_in_process(
      2,
      [](Context& context) {
        test::expect_error(ErrorCode::invalid_argument, {}, [&] {
          context.communicator().all_reduce(nullptr, 3, DataType::f32, ReduceOp::sum);
        });
        context.communicator().all_reduce(nullptr, 0, DataType::f32, ReduceOp::sum);
        float one = 1;
        context.communicator().all_reduce(std::span(&one, 1));
        EXPECT_EQ(one, 2);
      },
      options_for({}));
}

}  // namespace
}  // namespace ddl
