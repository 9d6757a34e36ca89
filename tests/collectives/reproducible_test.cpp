// Reproducible reductions: the same bits whatever the hosts, plans, placement and cuts.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/hash.hpp"
#include "ddl/topology/plan.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

constexpr int ranks = 16;
constexpr std::size_t count = 30'011;  // a prime: parts and shares are uneven

/// A layout of the job and its plans.
struct Setup {
  std::string name;
  std::string decomposition;
  std::vector<std::string> hosts;
  std::size_t bucket;
  bool is_async;
  std::vector<topology::Plan> plans = {};
};

/// Plans for each collective that reproducible reductions use. `step`: distance between successive ranks in
/// the plans' order.
std::vector<topology::Plan> plans(int inner, std::size_t chunks, int step) {
  using topology::Algorithm;
  using topology::Collective;
  std::vector<topology::Plan> result;
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
    topology::Plan plan;
    plan.collective = collective;
    plan.decomposition = topology::Decomposition({inner}, {ranks / inner});
    plan.chunks = static_cast<decltype(plan.chunks)>(chunks);
    plan.order_name = "permuted";
    plan.order.clear();
    for (int i = 0; i < ranks; ++i) plan.order.push_back(i * step % ranks);
    plan.dimensions.assign(2, {Algorithm::ring, topology::Carrier::network});
    result.push_back(std::move(plan));
  }
  return result;
}

std::vector<std::string> by_host(int each) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(fmt::format("host{}", rank / each));
  return hosts;
}
std::vector<std::string> by_turns(int number) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(fmt::format("host{}", rank % number));
  return hosts;
}

std::vector<Setup> setups() {
  return {{"2x8", "2x8", by_host(2), count, false},
          {"4x4", "4x4", by_host(4), count, false},
          {"8x2 in three buckets", "8x2", by_host(8), count / 3 + 1, true},
          {"16x1 in 17 buckets", "16", by_host(16), count / 17 + 1, true},
          {"4x4 by turns", "", by_turns(4), count, false},
          {"2 hosts by turns, in small buckets", "", by_turns(2), 1021, true},
          {"rings of 4 in 1 chunk", "", by_host(4), count, false, plans(4, 1, 1)},
          {"rings of 2 in 2 chunks, permuted", "", by_host(2), count / 2, true, plans(2, 2, 3)},
          {"rings of 8 in 5 chunks, permuted", "", by_host(8), count, false, plans(8, 5, 11)}};
}

/// Fractions of very different magnitudes that cancel, infinities and NaNs.
template <typename T>
T element(int rank, std::size_t i) {
  const std::uint64_t random = ddl::mix(static_cast<std::uint64_t>(rank) * count + i);
  const double fraction = static_cast<double>(random >> 40U) / (1 << 23) - 1;
  const int range = sizeof(T) == 2 ? 8 : 30;
  const double value = std::ldexp(fraction, static_cast<int>((random >> 20U) % static_cast<unsigned>(range)));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double chosen = value;
  if (i % 1009 == 3 && rank == 5) chosen = std::numeric_limits<double>::quiet_NaN();
  if (i % 1009 == 4 && rank == 7) chosen = infinity;
  if (i % 1009 == 5 && rank >= 14) chosen = rank == 14 ? infinity : -infinity;
  if (i % 1009 == 6) chosen = -0.0;
  if (i % 1009 == 7) chosen = value * 1e-42;  // denormal in f32
  return static_cast<T>(static_cast<std::conditional_t<sizeof(T) == 2, float, T>>(chosen));
}

template <typename T>
std::vector<T> input(int rank) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = element<T>(rank, i);
  return values;
}

/// The result, which must be the same on every rank.
template <typename T>
std::vector<T> all_reduced(const Setup& setup, ReduceOp op) {
  std::vector<std::vector<T>> results(ranks);
  InProcessOptions options;
  options.context.reproducible = true;
  options.context.decomposition = setup.decomposition;
  options.context.plans = setup.plans;
  options.hosts = setup.hosts;
  run_in_process(
      ranks,
      [&](Context& context) {
        std::vector<T> values = input<T>(context.rank());
        std::vector<Work> works;
        for (std::size_t begin = 0; begin < count; begin += setup.bucket) {
          const std::span<T> bucket = std::span(values).subspan(begin, std::min(setup.bucket, count - begin));
          works.push_back(context.communicator().all_reduce_async(bucket, op));
          if (!setup.is_async) works.back().wait();
        }
        for (Work& work : works) work.wait();
        results[static_cast<std::size_t>(context.rank())] = std::move(values);
      },
      options);
  for (const std::vector<T>& other : results) {
    EXPECT_EQ(std::memcmp(other.data(), results[0].data(), count * sizeof(T)), 0) << setup.name;
  }
  return results[0];
}

template <typename T>
double widened(T value) {
  if constexpr (sizeof(T) == 2) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
class Reproducible : public testing::Test {};
using Floats = testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(Reproducible, Floats);

TYPED_TEST(Reproducible, AllReduceHasTheSameBitsInEverySetup) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::prod}) {
    std::vector<TypeParam> first;
    for (const Setup& setup : setups()) {
      const std::vector<TypeParam> values = all_reduced<TypeParam>(setup, op);
      if (first.empty()) first = values;
      EXPECT_EQ(std::memcmp(values.data(), first.data(), count * sizeof(TypeParam)), 0)
          << setup.name << ", " << to_string(op);
    }
  }
}

/// The sum of all ranks' elements in long double.
template <typename T>
long double serial_sum(std::size_t i, long double& size) {
  long double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += widened(element<T>(rank, i));
    size += std::abs(static_cast<long double>(widened(element<T>(rank, i))));
  }
  return sum;
}

TYPED_TEST(Reproducible, SumsAreRoundedOnce) {
  const std::vector<TypeParam> values = all_reduced<TypeParam>(setups()[1], ReduceOp::sum);
  const long double u = sizeof(TypeParam) == 8               ? 0x1p-53L
                        : sizeof(TypeParam) == 4             ? 0x1p-24L
                        : std::is_same_v<TypeParam, float16> ? 0x1p-11L
                                                             : 0x1p-8L;
  const long double grid = sizeof(TypeParam) == 2 ? 0x1p-25L : sizeof(TypeParam) == 4 ? 0x1p-50L : 0x1p-100L;
  for (std::size_t i = 0; i < count; ++i) {
    long double size = 0;
    const long double expected = serial_sum<TypeParam>(i, size);
    const long double found = widened(values[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << i;
    } else if (std::isinf(expected)) {
      EXPECT_EQ(found, expected) << i;
    } else {
      const long double least = sizeof(TypeParam) == 2 ? 0x1p-24L : 0x1p-149L;  // denormal results
      EXPECT_LE(std::abs(found - expected), std::abs(expected) * u * 1.001L + ranks * size * grid + least)
          << i;
    }
  }
}

TYPED_TEST(Reproducible, MinimumMaximumAndProductAreRight) {
  const std::vector<TypeParam> least = all_reduced<TypeParam>(setups()[2], ReduceOp::min);
  const std::vector<TypeParam> greatest = all_reduced<TypeParam>(setups()[2], ReduceOp::max);
  const std::vector<TypeParam> product = all_reduced<TypeParam>(setups()[2], ReduceOp::prod);
  for (std::size_t i = 0; i < count; ++i) {
    double low = widened(element<TypeParam>(0, i));
    double high = low;
    double all = low;
    for (int rank = 1; rank < ranks; ++rank) {
      const double next = widened(element<TypeParam>(rank, i));
      low = std::isnan(low) || std::isnan(next) ? low + next : std::min(low, next);
      high = std::isnan(high) || std::isnan(next) ? high + next : std::max(high, next);
      all *= next;
    }
    const auto is_same = [](double found, double expected) {
      return found == expected || (std::isnan(found) && std::isnan(expected));
    };
    EXPECT_TRUE(is_same(widened(least[i]), low)) << i;
    EXPECT_TRUE(is_same(widened(greatest[i]), high)) << i;
    const auto rounded = static_cast<TypeParam>(
        static_cast<std::conditional_t<sizeof(TypeParam) == 2, float, TypeParam>>(all));
    EXPECT_TRUE(is_same(widened(product[i]), widened(rounded))) << i;
  }
}

TYPED_TEST(Reproducible, OtherReductionsHaveTheBitsOfAllReduce) {
  constexpr std::size_t share = count / ranks;
  const Setup setup{"4x4", "", by_host(4), share * ranks, false};
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::prod}) {
    const std::vector<TypeParam> expected = all_reduced<TypeParam>(setup, op);
    InProcessOptions options;
    options.context.reproducible = true;
    options.hosts = setup.hosts;
    run_in_process(
        ranks,
        [&](Context& context) {
          Communicator& communicator = context.communicator();
          const int rank = context.rank();
          const DataType type = data_type_of<TypeParam>();
          const TypeParam* const own_share = expected.data() + static_cast<std::size_t>(rank) * share;
          std::vector<TypeParam> values = input<TypeParam>(rank);
          std::vector<TypeParam> output(share);
          communicator.reduce_scatter(values.data(), output.data(), share, type, op);
          EXPECT_EQ(std::memcmp(output.data(), own_share, share * sizeof(TypeParam)), 0);
          TypeParam* const in_place = values.data() + static_cast<std::size_t>(rank) * share;
          communicator.reduce_scatter_async(values.data(), in_place, share, type, op).wait();
          EXPECT_EQ(std::memcmp(in_place, own_share, share * sizeof(TypeParam)), 0);
          values = input<TypeParam>(rank);
          std::vector<TypeParam> reduced(rank == 3 ? share * ranks : 0);
          communicator.reduce(values.data(), rank == 3 ? reduced.data() : nullptr, share * ranks, type, op,
                              3);
          if (rank == 3) {
            EXPECT_EQ(std::memcmp(reduced.data(), expected.data(), reduced.size() * sizeof(TypeParam)), 0);
          }
        },
        options);
  }
}

// Results would depend on the calling thread's rounding mode, or on its treatment of denormal numbers.
TEST(ReproducibleReductions, ModesOfTheCallersThreadDoNotMatter) {
  const auto reduced = [](int mode) {
    std::vector<float> result;
    InProcessOptions options;
    options.context.reproducible = true;
    run_in_process(
        3,
        [&](Context& context) {
          std::vector<float> values = input<float>(context.rank());
          if (context.rank() == 1) std::fesetround(mode);
          context.communicator().all_reduce(std::span(values).first(2000));
          std::fesetround(FE_TONEAREST);
          if (context.rank() == 0) result = values;
        },
        options);
    return result;
  };
  const std::vector<float> usual = reduced(FE_TONEAREST);
  const std::vector<float> upward = reduced(FE_UPWARD);
  EXPECT_EQ(std::memcmp(usual.data(), upward.data(), usual.size() * sizeof(float)), 0);
}

// Many reductions in flight, on communicators of several threads, would deadlock while parts wait for memory.
TEST(ReproducibleReductions, ManyAreUnderWayAtATime) {
  InProcessOptions options;
  options.context.reproducible = true;
  run_in_process(
      4,
      [&](Context& context) {
        Communicator pair = context.communicator().split(context.rank() % 2);
        constexpr std::size_t large = 5'000'001;
        std::vector<std::vector<float>> data;
        std::vector<Work> works;
        for (int i = 0; i < 12; ++i) {
          const bool is_large = i % 4 == 0;
          data.emplace_back(is_large ? large : static_cast<std::size_t>(100 * i),
                            0.5F + static_cast<float>(i));
        }
        for (int i = 0; i < 12; ++i) {
          Communicator& communicator = i % 3 == 0 ? pair : context.communicator();
          const ReduceOp op = i % 4 == 1 ? ReduceOp::max : ReduceOp::sum;
          works.push_back(communicator.all_reduce_async(std::span(data[static_cast<std::size_t>(i)]), op));
        }
        for (Work& work : works) work.wait();
        for (int i = 0; i < 12; ++i) {
          const float times = i % 4 == 1 ? 1 : i % 3 == 0 ? 2 : 4;
          for (const float value : data[static_cast<std::size_t>(i)]) {
            ASSERT_EQ(value, times * (0.5F + static_cast<float>(i))) << i;
          }
        }
      },
      options);
}

// Errors would name internal parts instead of the user's call.
TEST(ReproducibleReductions, MismatchesNameWhatWasCalled) {
  InProcessOptions options;
  options.context.reproducible = true;
  const auto run = [&] {
    run_in_process(
        2,
        [&](Context& context) {
          std::vector<float> values(1000, 1);
          Communicator& communicator = context.communicator();
          communicator.all_reduce(std::span(values));
          communicator.all_reduce(std::span(values), context.rank() == 0 ? ReduceOp::sum : ReduceOp::avg);
        },
        options);
  };
  test::expect_error(ErrorCode::mismatch, {"all_reduce #2", "avg of 1000 f32", "sum of 1000 f32"}, run);
}

}  // namespace
}  // namespace ddl
