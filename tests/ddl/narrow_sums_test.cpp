#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ddl/drift_check.hpp"
#include "ddl/error.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/hash.hpp"
#include "ddl/shared_buffer.hpp"
#include "support/job_options.hpp"
#include "support/thrown_error.hpp"

// 16-bit gradients that are summed in 16 bits.

namespace ddl {
namespace {

using Hosts = std::vector<std::string>;
const std::vector<Hosts> placements = {
    {"a"}, {"a", "a", "a"}, {"a", "b"}, {"a", "a", "b", "b"}, {"a", "b", "b"}};
const std::vector<std::size_t> counts = {130, 257, 64, 3000, 5, 96};  // the last is in rows of 8

double unit(DataType type) { return type == DataType::f16 ? 0x1p-11 : 0x1p-8; }

/// Gradients of one 16-bit type that are adjacent in memory of the host, or 2 bytes apart.
template <typename Narrow>
struct Block {
  Block(const Context& context, bool adjacent) : memory(allocate<Narrow>(context, 4000)) {
    std::size_t at = 0;
    for (const std::size_t count : counts) {
      values.push_back(memory.span().subspan(at, count));
      at += count + (adjacent ? 0 : 1);
    }
  }
  [[nodiscard]] std::vector<Gradient> gradients() const {
    std::vector<Gradient> result;
    for (std::size_t g = 0; g < counts.size(); ++g)
      result.push_back(
          {std::string("g").append(std::to_string(g)), values[g], g + 1 == counts.size() ? 8U : 0U});
    return result;
  }
  template <typename Value>
  void set(const Value& value) {
    for (std::size_t g = 0; g < counts.size(); ++g) {
      for (std::size_t e = 0; e < counts[g]; ++e) values[g][e] = Narrow(static_cast<float>(value(g, e)));
    }
  }

  SharedBuffer<Narrow> memory;
  std::vector<std::span<Narrow>> values;
};

/// Ends a step in which rank r's gradients, means or sums over r + 1 items, are `mean(r, g, e)` an item.
template <typename Narrow, typename Mean>
ReducedStep run_step(const Context& context, GradientReducer& reducer, Block<Narrow>& block,
                     GradientKind kind, const Mean& mean) {
  const double weight = context.rank() + 1;
  if (kind == GradientKind::mean) reducer.begin(weight);
  block.set([&](std::size_t g, std::size_t e) {
    return mean(context.rank(), g, e) * (kind == GradientKind::mean ? 1 : weight);
  });
  for (std::size_t g = counts.size(); g-- > 0;) reducer.ready(g);
  return kind == GradientKind::mean ? reducer.wait() : reducer.wait(weight);
}

/// Calls f with a value of each 16-bit type.
template <typename F>
void with_each_type(const F& f) {
  f(float16());
  f(bfloat16());
}

// A wrong weight, a lost rank or a sum in the wrong place would train a wrong model.
TEST(NarrowSums, SumsOfSmallIntegersAreExact) {
  const auto whole = [](int rank, std::size_t g, std::size_t e) {
    return static_cast<double>(SplitMix64(static_cast<std::uint64_t>(rank), g * 10'000 + e).below(41)) - 20;
  };
  for (const Hosts& hosts : placements) {
    for (const bool adjacent : {true, false}) {
      for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
        for (const bool reproducible : {false, true}) {
          InProcessOptions options = test::on_hosts(hosts);
          options.context.reproducible = reproducible;
          const auto ranks = static_cast<int>(hosts.size());
          run_in_process(
              ranks,
              [&](Context& context) {
                with_each_type([&]<typename Narrow>(Narrow) {
                  Block<Narrow> block(context, adjacent);
                  GradientReducer reducer(
                      context, block.gradients(),
                      {.gradients = kind, .bucket_bytes = 1000, .leave_sums = true, .narrow_sums = true});
                  for (int step = 0; step < 3; ++step) {
                    const ReducedStep found = run_step(context, reducer, block, kind, whole);
                    double squares = 0;
                    for (std::size_t g = 0; g < counts.size(); ++g) {
                      for (std::size_t e = 0; e < counts[g]; ++e) {
                        double sum = 0;
                        for (int rank = 0; rank < ranks; ++rank) sum += (rank + 1) * whole(rank, g, e);
                        ASSERT_EQ(static_cast<float>(block.values[g][e]), sum) << g << " " << e;
                        squares += sum * sum;
                      }
                    }
                    EXPECT_TRUE(found.finite);
                    EXPECT_NEAR(found.norm * found.weight, std::sqrt(squares), 1e-6 * std::sqrt(squares));
                    const std::uint64_t bytes = 2 * (130 + 257 + 64 + 3000 + 5 + 96);
                    EXPECT_GE(found.bytes, bytes);
                    EXPECT_LE(found.bytes, bytes + 96 / 8);  // the map of touched rows
                  }
                });
              },
              options);
        }
      }
    }
  }
}

// Rounding errors beyond the documented bound, or other bits on other ranks, whose models would drift apart.
TEST(NarrowSums, ErrorsAreWithinTheBoundAndAlikeOnAllRanks) {
  const auto any = [](int rank, std::size_t g, std::size_t e) {
    SplitMix64 random(static_cast<std::uint64_t>(rank) + 7, g * 10'000 + e);
    return (static_cast<double>(random.below(20'001)) - 10'000) / 3000;
  };
  for (const Hosts& hosts : placements) {
    for (const bool leave_sums : {true, false}) {
      for (const bool reproducible : {false, true}) {
        InProcessOptions options = test::on_hosts(hosts);
        options.context.reproducible = reproducible;
        const auto ranks = static_cast<int>(hosts.size());
        run_in_process(
            ranks,
            [&](Context& context) {
              with_each_type([&]<typename Narrow>(Narrow) {
                Block<Narrow> block(context, true);
                GradientReducer reducer(context, block.gradients(),
                                        {.gradients = GradientKind::sum,
                                         .bucket_bytes = 1000,
                                         .leave_sums = leave_sums,
                                         .narrow_sums = true});
                const ReducedStep found = run_step(context, reducer, block, GradientKind::sum, any);
                const double scale = leave_sums ? 1 : 1 / found.weight;
                const double roundings = (reproducible ? 1 : ranks - 1) + (leave_sums ? 0 : 1);
                for (std::size_t g = 0; g < counts.size(); ++g) {
                  for (std::size_t e = 0; e < counts[g]; ++e) {
                    double sum = 0;
                    double magnitude = 0;
                    for (int rank = 0; rank < ranks; ++rank) {
                      const auto value = static_cast<double>(
                          static_cast<float>(Narrow(static_cast<float>((rank + 1) * any(rank, g, e)))));
                      sum += value;
                      magnitude += std::abs(value);
                    }
                    const double bound = roundings * unit(data_type_of<Narrow>()) * magnitude * scale;
                    ASSERT_NEAR(static_cast<float>(block.values[g][e]), sum * scale, 1.01 * bound)
                        << g << " " << e;
                  }
                }
                std::vector<Parameter> same;
                for (const std::span<Narrow>& values : block.values) same.push_back({"g", values});
                check_same_parameters(context, same);
              });
            },
            options);
      }
    }
  }
}

// Some ranks would update their models with gradients that have overflowed, and others would not.
TEST(NarrowSums, AllRanksNoticeWhatIsNotFinite) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Hosts& hosts : {Hosts{"a", "a", "a"}, Hosts{"a", "a", "b"}}) {
    for (const bool leave_sums : {true, false}) {
      run_in_process(
          3,
          [&](Context& context) {
            Block<float16> block(context, true);
            GradientReducer reducer(
                context, block.gradients(),
                {.gradients = GradientKind::sum, .leave_sums = leave_sums, .narrow_sums = true});
            const auto is_finite = [&](double weight, const auto& value) {
              block.set(value);
              for (std::size_t g = counts.size(); g-- > 0;) reducer.ready(g);
              return reducer.wait(weight).finite;
            };
            EXPECT_TRUE(is_finite(1, [](std::size_t, std::size_t) { return 20'000.0f; }));
            EXPECT_FALSE(
                is_finite(1, [](std::size_t g, std::size_t e) { return g == 3 && e == 77 ? 30'000.0f : 1; }));
            EXPECT_FALSE(is_finite(1, [&](std::size_t g, std::size_t e) {
              return context.rank() == 1 && g == 1 && e == 256 ? nan : 1;
            }));
            // The sum is finite, but not the mean.
            EXPECT_EQ(is_finite(0.1, [](std::size_t, std::size_t) { return 20'000.0f; }), leave_sums);
          },
          test::on_hosts(hosts));
    }
  }
}

// Small gradients of many micro-batches would be lost beside the sum of those before them.
TEST(NarrowSums, MicroBatchesOfMeansAddUpInF32) {
  run_in_process(2, [](Context& context) {
    std::vector<bfloat16> gradient(3);
    GradientReducer reducer(context, {{"w", gradient}},
                            {.gradients = GradientKind::mean, .leave_sums = true, .narrow_sums = true});
    const auto micro_batch = [&](float value) {
      reducer.begin(1);
      gradient.assign(3, bfloat16(value));
      reducer.ready(0);
      return reducer.wait();
    };
    {
      const auto scope = reducer.no_sync();
      micro_batch(1);
      for (int i = 0; i < 3; ++i) micro_batch(0x1p-9f);
    }
    micro_batch(0x1p-9f);
    EXPECT_EQ(static_cast<float>(gradient[2]), 2 + 0x1p-6f);
  });
}

// An optimiser that is spread over ranks would lose bits of the parameters, or of other ranks' means.
TEST(NarrowSums, AShardedUpdateGathersParametersWithAllTheirBits) {
  for (const Hosts& hosts : placements) {
    const auto ranks = static_cast<int>(hosts.size());
    run_in_process(
        ranks,
        [&](Context& context) {
          with_each_type([&]<typename Narrow>(Narrow) {
            Block<Narrow> block(context, true);
            GradientReducer reducer(context, block.gradients(),
                                    {.gradients = GradientKind::sum,
                                     .bucket_bytes = 1000,
                                     .sharded_update = true,
                                     .narrow_sums = true});
            std::vector<std::vector<float>> values;
            std::vector<Parameter> parameters;
            for (const std::size_t count : counts) values.emplace_back(count);
            for (std::vector<float>& value : values) parameters.push_back({"p", value});
            for (int step = 0; step < 3; ++step) {
              run_step(context, reducer, block, GradientKind::sum,
                       [](int, std::size_t, std::size_t e) { return static_cast<double>(e % 8); });
              for (const GradientPiece& piece : reducer.shards()) {
                for (std::size_t e = piece.first; e < piece.first + piece.count; ++e)
                  values[piece.gradient][e] = static_cast<float>(block.values[piece.gradient][e]) + 0x1p-20f;
              }
              reducer.gather(parameters);
              for (std::size_t g = 0; g < counts.size(); ++g) {
                for (std::size_t e = 0; e < counts[g]; ++e)
                  ASSERT_EQ(values[g][e], static_cast<float>(e % 8) + 0x1p-20f) << g << " " << e;
              }
            }
          });
        },
        test::on_hosts(hosts));
  }
}

// A wire type would have no effect, and a resumed run would silently get other bits.
TEST(NarrowSums, WhatDoesNotFitIsRefused) {
  run_in_process(2, [](Context& context) {
    std::vector<bfloat16> narrow(4);
    const std::vector<Gradient> gradients = {{"w", narrow}};
    test::expect_error(
        ErrorCode::invalid_argument, {"'w' is bf16, which travels as it is", "wire type f16"}, [&] {
          GradientReducer(context, gradients,
                          {.gradients = GradientKind::sum, .wire = DataType::f16, .narrow_sums = true});
        });
    test::expect_error(ErrorCode::mismatch, {"option"}, [&] {
      GradientReducer(context, gradients,
                      {.gradients = GradientKind::sum, .narrow_sums = context.rank() == 0});
    });
    const std::string wide = GradientReducer(context, gradients, {.gradients = GradientKind::sum}).state();
    GradientReducer reducer(context, gradients, {.gradients = GradientKind::sum, .narrow_sums = true});
    test::expect_error(ErrorCode::mismatch, {"options"}, [&] { reducer.restore(wide); });
  });
}

}  // namespace
}  // namespace ddl
