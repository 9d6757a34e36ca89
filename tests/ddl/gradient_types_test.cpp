#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/hash.hpp"
#include "support/job_options.hpp"
#include "support/thrown_error.hpp"

// Gradients of other types than f32, alone and mixed, and gradients that a trainer keeps in several vectors.

namespace ddl {
namespace {

constexpr DataType types[] = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16};

double element(const Elements& values, std::size_t i) {
  switch (values.type()) {
    case DataType::f64:
      return values.as<double>()[i];
    case DataType::f16:
      return static_cast<float>(values.as<float16>()[i]);
    case DataType::bf16:
      return static_cast<float>(values.as<bfloat16>()[i]);
    default:
      return values.as<float>()[i];
  }
}

void set(const Elements& values, std::size_t i, double value) {
  switch (values.type()) {
    case DataType::f64:
      values.as<double>()[i] = value;
      break;
    case DataType::f16:
      values.as<float16>()[i] = float16(static_cast<float>(value));
      break;
    case DataType::bf16:
      values.as<bfloat16>()[i] = bfloat16(static_cast<float>(value));
      break;
    default:
      values.as<float>()[i] = static_cast<float>(value);
  }
}

/// The unit roundoff: half the distance between adjacent values at 1.
double unit(DataType type) {
  return type == DataType::f64   ? 0x1p-53
         : type == DataType::f32 ? 0x1p-24
         : type == DataType::f16 ? 0x1p-11
                                 : 0x1p-8;
}

/// Arrays whose types take turns, each in its own memory.
struct Mixed {
  explicit Mixed(std::vector<std::size_t> counts) : counts_(std::move(counts)) {
    for (std::size_t g = 0; g < counts_.size(); ++g) memory_.emplace_back(counts_[g] + 1);
  }
  [[nodiscard]] Elements operator[](std::size_t g) {
    return {memory_[g].data(), counts_[g], types[g % std::size(types)]};
  }
  [[nodiscard]] std::vector<Gradient> gradients(std::size_t width_of_last) {
    std::vector<Gradient> result;
    for (std::size_t g = 0; g < counts_.size(); ++g) {
      result.push_back({std::string("g").append(std::to_string(g)), (*this)[g],
                        g + 1 == counts_.size() ? width_of_last : 0});
    }
    return result;
  }
  [[nodiscard]] std::vector<Parameter> parameters() {
    std::vector<Parameter> result;
    for (std::size_t g = 0; g < counts_.size(); ++g) result.push_back({"p", (*this)[g]});
    return result;
  }

 private:
  std::vector<std::size_t> counts_;
  std::vector<std::vector<std::uint64_t>> memory_;
};

/// The contribution of a rank's item, which every type represents exactly.
double item_value(int rank, std::size_t step, std::size_t g, std::size_t e) {
  SplitMix64 random(static_cast<std::uint64_t>(rank) * 1000 + step, g * 100'000 + e);
  return (static_cast<double>(random.below(201)) - 100) / 64;
}

// A trainer in double, or in mixed precision, would get wrong means, or none.
TEST(GradientTypes, EveryTypeBecomesTheWeightedMeanOverRanks) {
  const std::vector<std::size_t> counts = {130, 257, 64, 300, 5, 700, 96};  // the last is f16, in rows of 8
  for (const auto& hosts :
       std::vector<std::vector<std::string>>{{"a"}, {"a", "a", "a"}, {"a", "a", "b", "b"}}) {
    for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
      for (const bool reproducible : {false, true}) {
        for (const bool alone : {false, true}) {  // only the touched rows travel, or all of them
          InProcessOptions options = test::on_hosts(hosts);
          options.context.reproducible = reproducible;
          const int ranks = static_cast<int>(hosts.size());
          run_in_process(
              ranks,
              [&](Context& context) {
                Mixed memory(counts);
                GradientReducer reducer(context, memory.gradients(8),
                                        {.gradients = kind, .bucket_bytes = 600});
                const std::size_t last = counts.size() - 1;
                const double weight = context.rank() + 1;
                for (std::size_t step = 0; step < 3; ++step) {
                  std::vector<std::int32_t> rows;
                  for (std::int32_t row = 0; row < 12; ++row) {
                    if (!alone || row % 6 == context.rank() % 6) rows.push_back(row);
                  }
                  const auto is_touched = [&](int rank, std::size_t g, std::size_t e) {
                    return g != last || !alone || e / 8 % 6 == static_cast<std::size_t>(rank) % 6;
                  };
                  if (kind == GradientKind::mean) reducer.begin(weight);
                  for (std::size_t g = counts.size(); g-- > 0;) {
                    for (std::size_t e = 0; e < counts[g]; ++e) {
                      const double own = item_value(context.rank(), step, g, e);
                      const double held = kind == GradientKind::mean ? own : own * weight;
                      set(memory[g], e, is_touched(context.rank(), g, e) ? held : 0);
                    }
                    g == last ? reducer.ready(g, rows) : reducer.ready(g);
                  }
                  const ReducedStep found =
                      kind == GradientKind::mean ? reducer.wait() : reducer.wait(weight);
                  double squares = 0;
                  double total = 0;
                  for (int rank = 0; rank < ranks; ++rank) total += rank + 1;
                  for (std::size_t g = 0; g < counts.size(); ++g) {
                    const double u = unit(memory[g].type());
                    for (std::size_t e = 0; e < counts[g]; ++e) {
                      double sum = 0;
                      double magnitude = 0;
                      for (int rank = 0; rank < ranks; ++rank) {
                        if (!is_touched(rank, g, e)) continue;
                        const double value = item_value(rank, step, g, e) * (rank + 1);
                        sum += value;
                        magnitude += std::abs(value);
                      }
                      // This rank's gradient and the mean are rounded to the type; f32 or f64 is used in
                      // between.
                      ASSERT_NEAR(element(memory[g], e), sum / total,
                                  3 * u * magnitude / total + 1e-7 * (u > 0x1p-50))
                          << "gradient " << g << ", element " << e << ", step " << step;
                      squares += sum / total * sum / total;
                    }
                  }
                  EXPECT_TRUE(found.finite);
                  EXPECT_NEAR(found.norm, std::sqrt(squares), 2e-3 * std::sqrt(squares));
                }
              },
              options);
        }
      }
    }
  }
}

// Mixed-precision training would apply a step whose gradients have overflowed.
TEST(GradientTypes, AMeanBeyondTheRangeOf16BitsIsNotFinite) {
  run_in_process(3, [](Context& context) {
    std::vector<float16> gradient(100, float16(60000.0f));
    GradientReducer reducer(context, {{"w", gradient}}, {.gradients = GradientKind::sum});
    reducer.ready(0);
    EXPECT_TRUE(reducer.wait(1).finite);
    EXPECT_EQ(static_cast<float>(gradient[99]), 60000.0f);  // the sum, 180,000, is not rounded to 16 bits
    reducer.ready(0);
    EXPECT_FALSE(reducer.wait(0.5).finite);
  });
}

// In double or 16 bits, ranks would not get the other ranks' updated shards.
TEST(GradientTypes, ShardedUpdatesGatherParametersOfEveryType) {
  const std::vector<std::size_t> counts = {130, 257, 64, 300, 5, 700, 96};
  InProcessOptions options = test::on_hosts({"a", "a", "b"});
  run_in_process(
      3,
      [&](Context& context) {
        Mixed memory(counts);
        Mixed parameters(counts);
        GradientReducer reducer(
            context, memory.gradients(0),
            {.gradients = GradientKind::sum, .bucket_bytes = 500, .sharded_update = true});
        for (std::size_t step = 0; step < 3; ++step) {
          for (std::size_t g = counts.size(); g-- > 0;) {
            for (std::size_t e = 0; e < counts[g]; ++e) set(memory[g], e, static_cast<double>(e % 50 + step));
            reducer.ready(g);
          }
          reducer.wait(1);
          for (const GradientPiece& piece : reducer.shards()) {
            for (std::size_t e = piece.first; e < piece.first + piece.count; ++e) {
              set(parameters[piece.gradient], e, 2 * element(memory[piece.gradient], e));
            }
          }
          reducer.gather(parameters.parameters());
          for (std::size_t g = 0; g < counts.size(); ++g) {
            for (std::size_t e = 0; e < counts[g]; ++e) {
              ASSERT_EQ(element(parameters[g], e), 2 * static_cast<double>(e % 50 + step)) << g << " " << e;
            }
          }
        }
        std::vector<Parameter> wrong = parameters.parameters();
        std::vector<std::int64_t> integers(counts[0]);
        wrong[0].values = integers;
        test::expect_error(ErrorCode::invalid_argument, {"gather", "f32, f16 or bf16"},
                           [&] { reducer.gather(wrong); });
      },
      options);
}

// Means of micro-batches in double would be added up in float.
TEST(GradientTypes, MicroBatchesOfMeansAddUpInTheirOwnPrecision) {
  run_in_process(2, [](Context& context) {
    std::vector<double> wide(3);
    std::vector<bfloat16> narrow(3);
    GradientReducer reducer(context, {{"wide", wide}, {"narrow", narrow}}, {.gradients = GradientKind::mean});
    const auto micro_batch = [&](double value) {
      reducer.begin(1);
      wide.assign(3, value);
      narrow.assign(3, bfloat16(1.0f));
      reducer.ready(1);
      reducer.ready(0);
      return reducer.wait();
    };
    {
      const auto scope = reducer.no_sync();
      micro_batch(1);
      micro_batch(0x1p-40);
    }
    const ReducedStep step = micro_batch(0x1p-40);
    EXPECT_EQ(step.weight, 6);
    EXPECT_EQ(wide[2], (1 + 0x1p-39) / 3);
    EXPECT_EQ(static_cast<float>(narrow[2]), 1.0f);
  });
}

// Trainers that keep one gradient per sample or thread would need their own pass to add them up.
TEST(GradientTypes, SummandsAreAddedUpAndZeroed) {
  run_in_process(2, [](Context& context) {
    std::vector<std::vector<double>> samples(4, std::vector<double>(5));
    std::vector<Gradient> gradients = {
        {.name = "w", .values = samples[0], .summands = {samples[1], samples[2], samples[3]}}};
    GradientReducer reducer(context, gradients, {.gradients = GradientKind::sum});
    for (int step = 0; step < 2; ++step) {
      for (std::size_t s = 0; s < 4; ++s) samples[s].assign(5, static_cast<double>(s) + 10 * context.rank());
      reducer.ready(0);
      reducer.wait(4);
      EXPECT_EQ(samples[0], std::vector<double>(5, (6.0 + 46.0) / 8));
      for (std::size_t s = 1; s < 4; ++s) EXPECT_EQ(samples[s], std::vector<double>(5));
    }
  });
}

// Bad gradients would be noticed only by a model that does not learn, and not when they are registered.
TEST(GradientTypes, WrongOnesAreRefused) {
  run_in_process(2, [](Context& context) {
    std::vector<std::int32_t> integers(4);
    std::vector<double> wide(4);
    std::vector<double> other(3);
    std::vector<float16> narrow(4);
    const auto refuses = [&](const std::vector<std::string>& parts, Gradient gradient, DataType wire) {
      test::expect_error(ErrorCode::invalid_argument, parts, [&] {
        GradientReducer(context, {std::move(gradient)}, {.gradients = GradientKind::sum, .wire = wire});
      });
    };
    refuses({"'w' is i32", "expected f32, f64, f16 or bf16"}, {"w", integers}, DataType::f32);
    refuses({"'w' is f64", "wire type bf16"}, {"w", wide}, DataType::bf16);
    refuses({"summand of 3 f64, expected 4 f64"}, {.name = "w", .values = wide, .summands = {other}},
            DataType::f32);
    refuses({"'w' is f16 and has summands"}, {.name = "w", .values = narrow, .summands = {narrow}},
            DataType::f32);
    refuses({"'w' and 'w' overlap"}, {.name = "w", .values = wide, .summands = {wide}}, DataType::f32);
  });
}

}  // namespace
}  // namespace ddl
