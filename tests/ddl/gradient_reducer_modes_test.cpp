#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/gradient_buffer.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/hash.hpp"
#include "support/thrown_error.hpp"

// Features of a reducer beyond plain steps: learned orders, accumulation, gradients without values, rows,
// 16-bit wires, sharded updates, threads.

namespace ddl {
namespace {

using Values = std::vector<float>;

/// An arbitrary integer for these arguments; sums of integers are exact.
float value_of(int rank, std::size_t step, std::size_t gradient, std::size_t element) {
  SplitMix64 random(static_cast<std::uint64_t>(rank) * 1000 + step, gradient * 100'000 + element);
  return static_cast<float>(random.below(2001)) - 1000;
}

/// A model's gradients, in one block of memory.
struct Model {
  Model(Context& context, const std::vector<std::size_t>& counts, std::size_t rows_of = none,
        std::size_t width = 0)
      : buffer(context, shapes(counts, rows_of, width)) {}

  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  static std::vector<GradientShape> shapes(const std::vector<std::size_t>& counts, std::size_t rows_of,
                                           std::size_t width) {
    std::vector<GradientShape> shapes;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      shapes.push_back({fmt::format("g{}", i), counts[i], i == rows_of ? width : 0});
    }
    return shapes;
  }
  void backward(int rank, std::size_t step) {
    for (std::size_t g = 0; g < buffer.gradients().size(); ++g) {
      for (std::size_t e = 0; e < buffer[g].size(); ++e) buffer[g][e] = value_of(rank, step, g, e);
    }
  }
  [[nodiscard]] Values values() const { return {buffer.values().begin(), buffer.values().end()}; }
  GradientBuffer buffer;
};

const std::vector<std::size_t> counts = {30, 7, 0, 200, 5, 64};

/// Expects the exact sums over all ranks, divided by `weight`.
void expect_means(const Model& model, int ranks, std::size_t step, double weight) {
  for (std::size_t g = 0; g < counts.size(); ++g) {
    for (std::size_t e = 0; e < counts[g]; ++e) {
      double sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += value_of(rank, step, g, e);
      ASSERT_EQ(model.buffer[g][e], static_cast<float>(sum * (1 / weight))) << g << " " << e;
    }
  }
}

InProcessOptions on_hosts(const std::vector<int>& sizes) {
  InProcessOptions options;
  for (std::size_t host = 0; host < sizes.size(); ++host) {
    for (int i = 0; i < sizes[host]; ++i) options.hosts.push_back(fmt::format("host{}", host));
  }
  return options;
}

using test::expect_error;

// Gradients would be wrong where ranks finish them in different orders that change in every step.
TEST(GradientReducer, AnyOrderOfReadinessOnAnyRank) {
  for (const int ranks : {1, 3, 16}) {
    run_in_process(ranks, [&](Context& context) {
      Model model(context, counts);
      GradientReducer reducer(context, model.buffer.gradients(),
                              {.gradients = GradientKind::sum, .bucket_bytes = 160});
      SplitMix64 random(5, static_cast<std::uint64_t>(context.rank()));
      std::vector<std::size_t> order(counts.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      for (std::size_t step = 0; step < 5; ++step) {
        shuffle(std::span(order), random);
        model.backward(context.rank(), step);
        for (const std::size_t index : order) reducer.ready(index);
        EXPECT_EQ(reducer.wait(2).weight, 2.0 * ranks);
        expect_means(model, ranks, step, 2.0 * ranks);
      }
    });
  }
}

// Nothing would overlap with backward. A bucket starts when its last gradient is ready and the buckets before
// it have started; a single rank then has its means at once.
TEST(GradientReducer, BucketsStartDuringBackward) {
  run_in_process(1, [](Context& context) {
    Model model(context, {4, 4, 4});
    GradientReducer reducer(context, model.buffer.gradients(),
                            {.gradients = GradientKind::sum, .bucket_bytes = 32});
    for (int step = 0; step < 2; ++step) {
      std::ranges::fill(model.buffer.values(), 6.0f);
      reducer.begin(2);
      if (step == 0) {  // buckets: gradients 1 and 2; gradient 0
        reducer.ready(0);
        EXPECT_EQ(model.values(), Values(12, 6.0f));
        reducer.ready(1);
        EXPECT_EQ(model.values(), Values(12, 6.0f));
        reducer.ready(2);
      } else {  // buckets: gradients 0 and 1; gradient 2
        for (const std::size_t index : {2U, 0U}) reducer.ready(index);
        EXPECT_EQ(model.values(), Values(12, 6.0f));
        reducer.ready(1);
      }
      EXPECT_EQ(model.values(), Values(12, 3.0f)) << "before wait";
      reducer.wait();
    }
  });
}

// Reductions would hide little: buckets follow the first step's order of readiness from then on.
TEST(GradientReducer, LearnsTheOrderOfReadiness) {
  run_in_process(2, [](Context& context) {
    Model model(context, {10, 10, 10});
    GradientReducer reducer(context, model.buffer.gradients(),
                            {.gradients = GradientKind::sum, .bucket_bytes = 40});
    EXPECT_NE(reducer.state().find("\"order\":[]"), std::string::npos) << reducer.state();
    for (const std::size_t index : {1U, 2U, 0U}) reducer.ready(index);
    reducer.wait(1);
    EXPECT_NE(reducer.state().find("\"order\":[1,2,0]"), std::string::npos) << reducer.state();
    for (const std::size_t index : {0U, 1U, 2U}) reducer.ready(index);
    reducer.wait(1);
    EXPECT_NE(reducer.state().find("\"order\":[1,2,0]"), std::string::npos) << "learned once";
  });
}

// A batch larger than memory would be trained with the gradients of its last part only.
TEST(GradientReducer, MicroBatchesAreReducedOnce) {
  for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
    for (const bool flat : {true, false}) {
      run_in_process(3, [&](Context& context) {
        Model model(context, counts);
        std::vector<Gradient> gradients = model.buffer.gradients();
        if (!flat) std::ranges::reverse(gradients);
        GradientReducer reducer(context, gradients, {.gradients = kind, .bucket_bytes = 400});
        for (std::size_t step = 0; step < 3; ++step) {
          // Micro-batch m of rank r has r + m items, so rank 0 begins with none. Gradients are integers.
          const auto items = [](int rank, int micro) { return static_cast<double>(rank + micro); };
          const auto gradient = [&](int rank, int micro, std::size_t g, std::size_t e) {
            return static_cast<double>(value_of(rank * 10 + micro, step, g, e)) * (items(rank, micro) > 0);
          };
          ReducedStep reduced;
          for (int micro = 0; micro < 3; ++micro) {
            for (std::size_t g = 0; g < counts.size(); ++g) {
              for (std::size_t e = 0; e < counts[g]; ++e) {
                const double mean = gradient(context.rank(), micro, g, e);
                float& target = model.buffer[g][e];
                if (kind == GradientKind::mean) {
                  target = static_cast<float>(
                      items(context.rank(), micro) > 0 ? mean : std::numeric_limits<double>::quiet_NaN());
                } else {
                  target =
                      (micro == 0 ? 0 : target) + static_cast<float>(mean * items(context.rank(), micro));
                }
              }
            }
            const double weight = items(context.rank(), micro);
            const auto run = [&] {
              if (kind == GradientKind::mean) reducer.begin(weight);
              for (std::size_t g = 0; g < counts.size(); ++g) reducer.ready(g);
              reduced = kind == GradientKind::mean ? reducer.wait() : reducer.wait(weight);
            };
            if (micro < 2) {
              const auto scope = reducer.no_sync();
              run();
            } else {
              run();
            }
          }
          double total = 0;
          for (int rank = 0; rank < 3; ++rank) total += 3.0 * rank + 3;
          EXPECT_EQ(reduced.weight, total);
          for (std::size_t g = 0; g < counts.size(); ++g) {
            for (std::size_t e = 0; e < counts[g]; ++e) {
              double sum = 0;
              for (int rank = 0; rank < 3; ++rank) {
                for (int micro = 0; micro < 3; ++micro)
                  sum += items(rank, micro) * gradient(rank, micro, g, e);
              }
              ASSERT_EQ(model.buffer[g][e], static_cast<float>(sum * (1 / total)));
            }
          }
        }
      });
    }
  }
}

// A batch with an error in one micro-batch on one rank would be applied on all ranks.
TEST(GradientReducer, AProblemOfAMicroBatchComesOutWithTheStep) {
  run_in_process(2, [](Context& context) {
    Model model(context, {3});
    GradientReducer reducer(context, model.buffer.gradients(), {.gradients = GradientKind::sum});
    {
      const auto scope = reducer.no_sync();
      expect_error(ErrorCode::invalid_argument, {"no_sync() within"},
                   [&] { const auto again = reducer.no_sync(); });
      reducer.ready(0);
      reducer.wait(context.rank() == 1 ? -1 : 2);
    }
    reducer.ready(0);
    expect_error(ErrorCode::invalid_argument, {"rank 1", "the weight is -1"}, [&] { reducer.wait(2); });
    reducer.ready(0);
    EXPECT_EQ(reducer.wait(2).weight, 4);
  });
}

// Models of which a step uses only a part, on some ranks, could not be trained.
TEST(GradientReducer, GradientsWithoutValuesCountAsZeros) {
  for (const bool flat : {true, false}) {
    run_in_process(4, [&](Context& context) {
      Model model(context, counts);
      std::vector<Gradient> gradients = model.buffer.gradients();
      if (!flat) std::ranges::reverse(gradients);
      GradientReducer reducer(context, gradients, {.gradients = GradientKind::sum, .bucket_bytes = 100});
      // Gradient 0 has a value on all ranks, 1 only on rank 2, 3 on none in step 1.
      for (std::size_t step = 0; step < 3; ++step) {
        const auto has = [&](int rank, std::size_t g) {
          return step != 1 || (g != 3 && (g != 1 || rank == 2));
        };
        for (std::size_t i = 0; i < counts.size(); ++i) {
          const std::size_t g = flat ? i : counts.size() - 1 - i;
          for (std::size_t e = 0; e < counts[g]; ++e) {
            model.buffer[g][e] = has(context.rank(), g) ? value_of(context.rank(), step, g, e)
                                                        : std::numeric_limits<float>::quiet_NaN();
          }
          has(context.rank(), g) ? reducer.ready(i) : reducer.absent(i);
        }
        EXPECT_TRUE(reducer.wait(1).finite);
        for (std::size_t i = 0; i < counts.size(); ++i) {
          const std::size_t g = flat ? i : counts.size() - 1 - i;
          EXPECT_EQ(reducer.has_gradient(i), step != 1 || g != 3) << g;
          for (std::size_t e = 0; e < counts[g]; ++e) {
            double sum = 0;
            for (int rank = 0; rank < 4; ++rank) {
              if (has(rank, g)) sum += value_of(rank, step, g, e);
            }
            ASSERT_EQ(model.buffer[g][e], static_cast<float>(sum / 4)) << g;
          }
        }
      }
      reducer.absent(0);
      expect_error(ErrorCode::invalid_argument, {"ready(0)", "reported before"}, [&] { reducer.ready(0); });
    });
  }
}

// Gradient clipping would be wrong, or some ranks would skip a step that others do not.
TEST(GradientReducer, NormAndFinitenessAreTheSameOnAllRanks) {
  for (const bool leave_sums : {false, true}) {
    for (const int ranks : {1, 4, 16}) {
      run_in_process(ranks, [&](Context& context) {
        Model model(context, counts);
        GradientReducer reducer(
            context, model.buffer.gradients(),
            {.gradients = GradientKind::sum, .bucket_bytes = 256, .leave_sums = leave_sums});
        const auto step = [&](std::size_t number, float change) {
          model.backward(context.rank(), number);
          if (context.rank() == ranks - 1) model.buffer[3][17] += change;
          for (std::size_t g = counts.size(); g-- > 0;) reducer.ready(g);
          return reducer.wait(3);
        };
        const ReducedStep plain = step(1, 0);
        EXPECT_TRUE(plain.finite);
        EXPECT_EQ(plain.scale, leave_sums ? 1.0 / (3.0 * ranks) : 1.0);
        double square = 0;
        for (const float value : model.values()) square += std::pow(value * plain.scale, 2);
        EXPECT_NEAR(plain.norm / std::sqrt(square), 1, 1e-6);
        const std::string norms = context.broadcast_string(fmt::format("{}", plain.norm));
        EXPECT_EQ(norms, fmt::format("{}", plain.norm));
        EXPECT_FALSE(step(2, std::numeric_limits<float>::quiet_NaN()).finite);
        EXPECT_FALSE(step(3, std::numeric_limits<float>::infinity()).finite);
        EXPECT_TRUE(step(4, 0).finite);
      });
    }
  }
}

// Embeddings would get wrong gradients where only touched rows travel.
TEST(GradientReducer, RowsGiveWhatDenseGradientsGive) {
  constexpr std::size_t rows = 50;
  constexpr std::size_t width = 6;
  for (const int ranks : {1, 2, 16}) {
    for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
      run_in_process(ranks, [&](Context& context) {
        Model sparse(context, {20, rows * width, 30}, 1, width);
        Model dense(context, {20, rows * width, 30});
        GradientReducer by_rows(context, sparse.buffer.gradients(), {.gradients = kind, .bucket_bytes = 64});
        GradientReducer whole(context, dense.buffer.gradients(), {.gradients = kind, .bucket_bytes = 64});
        SplitMix64 random(3, static_cast<std::uint64_t>(context.rank()));
        // The number of rows that a rank touches; with 0 the gradient is absent.
        for (const std::size_t touched : {2U, 1U, 50U, 0U, 3U}) {
          std::vector<std::int32_t> list;
          for (std::size_t i = 0; i < touched; ++i)
            list.push_back(static_cast<std::int32_t>(random.below(rows)));
          if (touched > 0) list.push_back(list.front());
          for (Model* model : {&sparse, &dense}) {
            model->backward(context.rank(), touched);
            for (std::size_t row = 0; row < rows; ++row) {
              if (std::ranges::find(list, static_cast<std::int32_t>(row)) != list.end()) continue;
              std::fill_n(&model->buffer[1][row * width], width, 0.0f);
            }
          }
          const double weight = context.rank() % 3 + 1;
          const auto step = [&](GradientReducer& reducer, bool with_rows) {
            if (kind == GradientKind::mean) reducer.begin(weight);
            reducer.ready(2);
            if (!with_rows) {
              reducer.ready(1);
            } else if (touched == 0) {
              reducer.absent(1);
            } else {
              reducer.ready(1, list);
            }
            reducer.ready(0);
            return kind == GradientKind::mean ? reducer.wait() : reducer.wait(weight);
          };
          const ReducedStep found = step(by_rows, true);
          const ReducedStep expected = step(whole, false);
          EXPECT_EQ(found.weight, expected.weight);
          EXPECT_NEAR(found.norm, expected.norm, 1e-9 * expected.norm);
          EXPECT_EQ(sparse.values(), dense.values());
          std::vector<std::uint32_t> nonzero;
          for (std::size_t row = 0; row < rows; ++row) {
            const auto values = sparse.buffer[1].subspan(row * width, width);
            if (std::ranges::any_of(values, [](float v) { return v != 0; })) {
              nonzero.push_back(static_cast<std::uint32_t>(row));
            }
          }
          EXPECT_TRUE(std::ranges::includes(by_rows.touched_rows(1), nonzero));
          EXPECT_LE(by_rows.touched_rows(1).size(), touched * static_cast<std::size_t>(ranks));
          if (ranks == 2 && touched == 2) {
            EXPECT_LT(found.bytes, expected.bytes / 2);
          }
          if (touched == 50) {
            EXPECT_LE(found.bytes, expected.bytes + rows);
          }
        }
      });
    }
  }
}

TEST(GradientReducer, RowsThatCannotBeAreRefused) {
  run_in_process(1, [](Context& context) {
    Model model(context, {20, 12}, 1, 3);
    GradientReducer reducer(context, model.buffer.gradients(), {.gradients = GradientKind::sum});
    const std::vector<std::int32_t> beyond = {1, 4};
    const std::vector<std::int32_t> negative = {-1};
    expect_error(ErrorCode::invalid_argument, {"row 4", "('g1') has 4 rows"},
                 [&] { reducer.ready(1, beyond); });
    expect_error(ErrorCode::invalid_argument, {"row -1"}, [&] { reducer.ready(1, negative); });
    expect_error(ErrorCode::invalid_argument, {"'g0'", "without row_width"},
                 [&] { reducer.ready(0, beyond); });
    expect_error(ErrorCode::invalid_argument, {"'g1'", "13 elements", "rows of 3"}, [&] {
      Model odd(context, {20, 13}, 1, 3);
      GradientReducer other(context, odd.buffer.gradients(), {.gradients = GradientKind::sum});
    });
  });
}

// The wire would not save bytes between hosts, or its rounding errors would add up in the model.
TEST(GradientReducer, WireRoundsAndOwesTheRestToTheNextStep) {
  constexpr std::size_t steps = 50;
  for (const DataType wire : {DataType::bf16, DataType::f16}) {
    const double rounding = wire == DataType::bf16 ? 0x1p-8 : 0x1p-11;
    for (const auto& hosts : {std::vector<int>{2, 2}, {1, 1, 1}, {3, 1, 2}, {4, 4, 4, 4}, {3}}) {
      // With values on only one host the additions between hosts are exact. What remains is the rounding of
      // that host, which the next steps compensate.
      for (const bool on_one_host : {true, false}) {
        const int ranks = std::accumulate(hosts.begin(), hosts.end(), 0);
        const int with_values = on_one_host ? hosts.front() : ranks;
        run_in_process(
            ranks,
            [&](Context& context) {
              Model model(context, counts);
              GradientReducer reducer(context, model.buffer.gradients(),
                                      {.gradients = GradientKind::sum, .bucket_bytes = 300, .wire = wire});
              std::vector<double> sums(model.values().size());
              for (std::size_t step = 0; step <= steps; ++step) {
                model.backward(context.rank(), 1);  // the same gradient in each step
                if (context.rank() >= with_values) std::ranges::fill(model.buffer.values(), 0.0f);
                for (std::size_t g = counts.size(); g-- > 0;) reducer.ready(g);
                const ReducedStep reduced = reducer.wait(1);
                EXPECT_TRUE(reduced.finite);
                if (step == 0) continue;  // the first step uses f32
                EXPECT_EQ(reduced.bytes<reducer.bytes() * 3 / 5, hosts.size()> 1);
                const Values values = model.values();
                for (std::size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
              }
              for (std::size_t g = 0, i = 0; g < counts.size(); ++g) {
                for (std::size_t e = 0; e < counts[g]; ++e, ++i) {
                  double sum = 0;
                  double magnitude = 0;
                  for (int rank = 0; rank < with_values; ++rank) {
                    sum += value_of(rank, 1, g, e);
                    magnitude += std::abs(value_of(rank, 1, g, e));
                  }
                  const double additions = on_one_host ? 0 : static_cast<double>(hosts.size()) - 1;
                  const double bound = magnitude / ranks * rounding * (2.0 / steps + 1.1 * additions);
                  EXPECT_LE(std::abs(sums[i] / steps - sum / ranks), bound + 1e-4) << g << " " << e;
                }
              }
            },
            on_hosts(hosts));
      }
    }
  }
}

// Training would never recover from one step that was skipped.
TEST(GradientReducer, AStepThatIsNotFiniteLeavesNoTraceInTheResiduals) {
  run_in_process(
      4,
      [](Context& context) {
        Model a(context, counts);
        Model b(context, counts);
        const GradientReducerOptions options{.gradients = GradientKind::sum, .wire = DataType::bf16};
        GradientReducer with(context, a.buffer.gradients(), options);
        GradientReducer without(context, b.buffer.gradients(), options);
        const auto step = [&](Model& model, GradientReducer& reducer, std::size_t number, float change) {
          model.backward(context.rank(), number);
          if (context.rank() == 1) model.buffer[0][3] += change;
          for (std::size_t g = 0; g < counts.size(); ++g) reducer.ready(g);
          return reducer.wait(1).finite;
        };
        for (std::size_t number = 0; number < 4; ++number) {
          EXPECT_TRUE(step(a, with, number, 0));
          EXPECT_TRUE(step(b, without, number, 0));
          EXPECT_EQ(a.values(), b.values());
          if (number == 1) {
            EXPECT_FALSE(step(a, with, 100, std::numeric_limits<float>::infinity()));
          }
          if (number == 2) {
            EXPECT_FALSE(step(a, with, 100, std::numeric_limits<float>::quiet_NaN()));
          }
        }
      },
      on_hosts({2, 2}));
}

// A resumed run would differ from one that never stopped.
TEST(GradientReducer, GoesOnFromItsStateWithTheSameBits) {
  run_in_process(
      4,
      [](Context& context) {
        const GradientReducerOptions options{
            .gradients = GradientKind::sum, .bucket_bytes = 200, .wire = DataType::bf16};
        const auto step = [&](Model& model, GradientReducer& reducer, std::size_t number) {
          model.backward(context.rank(), number);
          for (Gradient gradient : model.buffer.gradients()) {
            for (float& value : gradient.values.as<float>()) value *= 1.0f / 3;
          }
          for (const std::size_t g : {3U, 1U, 0U, 2U, 5U, 4U}) reducer.ready(g);
          reducer.wait(1);
          return model.values();
        };
        Model model(context, counts);
        GradientReducer reducer(context, model.buffer.gradients(), options);
        step(model, reducer, 0);
        step(model, reducer, 1);
        const std::string state = reducer.state();
        std::vector<Values> residuals;
        for (const NamedTensor& tensor : reducer.residuals()) {
          residuals.emplace_back(tensor.bytes.size() / sizeof(float));
          std::memcpy(residuals.back().data(), tensor.bytes.data(), tensor.bytes.size());
        }
        std::int32_t of_any_rank = residuals.empty() ? 0 : 1;
        context.communicator().all_reduce(std::span(&of_any_rank, 1));
        EXPECT_GT(of_any_rank, 0);
        std::vector<Values> went_on;
        for (std::size_t number = 2; number < 5; ++number) went_on.push_back(step(model, reducer, number));

        Model fresh(context, counts);
        GradientReducer resumed(context, fresh.buffer.gradients(), options);
        resumed.restore(state);
        EXPECT_EQ(resumed.state(), state);
        const auto places = resumed.residuals();
        ASSERT_EQ(places.size(), residuals.size());
        for (std::size_t i = 0; i < places.size(); ++i) {
          ASSERT_EQ(places[i].bytes.size(), residuals[i].size() * sizeof(float));
          std::memcpy(places[i].bytes.data(), residuals[i].data(), places[i].bytes.size());
        }
        for (std::size_t number = 2; number < 5; ++number) {
          EXPECT_EQ(step(fresh, resumed, number), went_on[number - 2]) << number;
        }
      },
      on_hosts({2, 2}));
}

TEST(GradientReducer, StatesThatDoNotFitAreRefused) {
  run_in_process(2, [](Context& context) {
    Model model(context, counts);
    GradientReducer reducer(context, model.buffer.gradients(), {.gradients = GradientKind::sum});
    for (std::size_t g = 0; g < counts.size(); ++g) reducer.ready(g);
    reducer.wait(1);
    const std::string state = reducer.state();
    for (std::size_t length = 0; length < state.size(); ++length) {
      expect_error(ErrorCode::corrupt_data, {"GradientReducer::restore"},
                   [&] { reducer.restore(state.substr(0, length)); });
    }
    const auto changed = [&](const std::string& from, const std::string& to) {
      std::string text = state;
      const std::size_t at = text.find(from);
      EXPECT_NE(at, std::string::npos) << from;
      return text.replace(at, from.size(), to);
    };
    for (const std::string& text :
         {changed("\"version\":1", "\"version\":2"), changed("\"order\":[0", "\"order\":[1"),
          changed("\"order\":[0", "\"order\":[-1"), changed("\"order\":[0,", "\"order\":["),
          changed("\"bucket_bytes\":", "\"bucket_bytes\":0,\"x\":"),
          changed("\"bucket_bytes\":", "\"bucket_bytes\":-"), changed("reducer", "sampler")}) {
      expect_error(ErrorCode::corrupt_data, {"GradientReducer::restore"}, [&] { reducer.restore(text); });
    }
    Model other(context, {30, 7, 0, 200, 5, 65});
    GradientReducer another(context, other.buffer.gradients(), {.gradients = GradientKind::sum});
    expect_error(ErrorCode::mismatch, {"other gradients"}, [&] { another.restore(state); });
    expect_error(ErrorCode::mismatch, {"state 0"}, [&] {
      reducer.restore(context.is_root() ? state : changed("\"order\":[0,1", "\"order\":[1,0"));
    });
  });
}

// The optimiser's state would take memory for n copies, or no rank would update some parts of the model.
TEST(GradientReducer, ShardedUpdateGivesWhatEveryRanksOwnUpdateGives) {
  for (const auto& hosts : {std::vector<int>{1}, {2}, {3}, {2, 2}, {16}}) {
    for (const DataType wire : {DataType::f32, DataType::bf16}) {
      const int ranks = std::accumulate(hosts.begin(), hosts.end(), 0);
      run_in_process(
          ranks,
          [&](Context& context) {
            const std::vector<std::size_t> with_rows = {30, 7, 0, 201, 5, 64, 17};
            Model sharded(context, with_rows, 3, 3);
            Model whole(context, with_rows, 3, 3);
            GradientReducerOptions options{
                .gradients = GradientKind::sum, .bucket_bytes = 160, .wire = wire, .sharded_update = true};
            GradientReducer by_shards(context, sharded.buffer.gradients(), options);
            options.sharded_update = false;
            options.wire = DataType::f32;
            GradientReducer everywhere(context, whole.buffer.gradients(), options);
            Model parameters(context, with_rows);
            std::vector<Values> scattered;
            for (const std::size_t count : with_rows) scattered.emplace_back(count);
            std::vector<Parameter> flat, apart;
            for (std::size_t g = 0; g < with_rows.size(); ++g) {
              flat.push_back({"", parameters.buffer[g]});
              apart.push_back({"", scattered[g]});
            }
            for (std::size_t step = 0; step < 3; ++step) {
              const std::vector<std::int32_t> rows = {context.rank(), 5};
              for (Model* model : {&sharded, &whole}) {
                model->backward(context.rank(), step);
                for (std::size_t row = 0; row < 67; ++row) {
                  if (row != 5 && row != static_cast<std::size_t>(context.rank())) {
                    std::fill_n(&model->buffer[3][row * 3], 3, 0.0f);
                  }
                }
              }
              for (std::size_t g = 0; g < with_rows.size(); ++g) {
                g == 3 ? by_shards.ready(g, rows) : by_shards.ready(g);
                g == 3 ? everywhere.ready(g, rows) : everywhere.ready(g);
              }
              const ReducedStep own = by_shards.wait(1);
              const ReducedStep all = everywhere.wait(1);
              if (wire == DataType::f32) {
                EXPECT_NEAR(own.norm, all.norm, 1e-9 * all.norm);
              }
              for (const GradientPiece& shard : by_shards.shards()) {
                for (std::size_t e = shard.first; e < shard.first + shard.count; ++e) {
                  const float update = sharded.buffer[shard.gradient][e];
                  flat[shard.gradient].values.as<float>()[e] -= update;
                  apart[shard.gradient].values.as<float>()[e] -= update;
                }
              }
              by_shards.gather(flat);
              by_shards.gather(apart);
              for (std::size_t g = 0; g < with_rows.size(); ++g) {
                for (std::size_t e = 0; e < with_rows[g]; ++e) {
                  const double slack = wire == DataType::f32 || step == 0 ? 0 : 0.05 * 1000 * ranks;
                  EXPECT_NEAR(apart[g].values.as<float>()[e] + whole.buffer[g][e], 0, slack) << g << " " << e;
                  EXPECT_EQ(apart[g].values.as<float>()[e], flat[g].values.as<float>()[e]);
                  flat[g].values.as<float>()[e] = apart[g].values.as<float>()[e] = 0;
                }
              }
            }
            std::size_t own = 0;
            for (const GradientPiece& shard : by_shards.shards()) own += shard.count;
            const std::size_t total = 324;
            EXPECT_LE(own, total / static_cast<std::size_t>(ranks) + 30);
            expect_error(ErrorCode::invalid_argument, {"without sharded_update"},
                         [&] { everywhere.gather(flat); });
            flat.pop_back();
            expect_error(ErrorCode::invalid_argument, {"gather", "6 parameters"},
                         [&] { by_shards.gather(flat); });
          },
          on_hosts(hosts));
    }
  }
}

// A reproducible run would change its bits as soon as its ranks are on other hosts.
TEST(GradientReducer, AReproducibleContextRefusesAWire) {
  InProcessOptions options = on_hosts({1, 1});
  options.context.reproducible = true;
  run_in_process(
      2,
      [](Context& context) {
        Model model(context, counts);
        expect_error(ErrorCode::invalid_argument, {"wire type is bf16", "reproducible", "expected f32"}, [&] {
          GradientReducer(context, model.buffer.gradients(),
                          {.gradients = GradientKind::sum, .wire = DataType::bf16});
        });
      },
      options);
}

// Reproducible training would depend on how buckets are cut.
TEST(GradientReducer, ReproducibleWhateverTheBuckets) {
  std::vector<std::pair<Values, double>> results;
  std::mutex mutex;
  for (const std::size_t bucket_bytes : {64U, 500U, 100'000U}) {
    for (const bool sharded : {false, true}) {
      InProcessOptions options = on_hosts({2, 3});
      options.context.reproducible = true;
      run_in_process(
          5,
          [&](Context& context) {
            Model model(context, counts);
            GradientReducer reducer(
                context, model.buffer.gradients(),
                {.gradients = GradientKind::sum, .bucket_bytes = bucket_bytes, .sharded_update = sharded});
            ReducedStep reduced;
            for (std::size_t step = 0; step < 2; ++step) {
              model.backward(context.rank(), step);
              for (float& value : model.buffer.values()) value /= 7;
              for (const std::size_t g : {3U, 1U, 0U, 2U, 5U, 4U}) reducer.ready(g);
              reduced = reducer.wait(3);
            }
            if (sharded) {
              std::vector<Parameter> means;
              for (std::size_t g = 0; g < counts.size(); ++g) means.push_back({"", model.buffer[g]});
              reducer.gather(means);
            }
            const std::lock_guard lock(mutex);
            results.emplace_back(model.values(), reduced.norm);
          },
          options);
    }
  }
  for (const auto& result : results) EXPECT_EQ(result, results.front());
}

// Trainers whose backward pass has its own threads would fail.
TEST(GradientReducer, WaitsForGradientsOfOtherThreads) {
  run_in_process(2, [](Context& context) {
    Model model(context, counts);
    GradientReducer reducer(context, model.buffer.gradients(),
                            {.gradients = GradientKind::sum, .bucket_bytes = 100});
    for (std::size_t step = 0; step < 5; ++step) {
      model.backward(context.rank(), step);
      reducer.ready(0);
      std::thread other([&] {
        for (std::size_t g = 1; g < counts.size(); ++g) reducer.ready(g);
      });
      if (step == 0) other.join();  // the reducer does not know yet that other threads report
      reducer.wait(1);
      if (step > 0) other.join();
      expect_means(model, 2, step, 2);
    }
  });
}

// The job would end only after ten minutes, and without naming the gradient.
TEST(GradientReducer, AGradientThatNeverComesIsNamedAfterTheDeadline) {
  InProcessOptions options;
  options.context.deadline = std::chrono::milliseconds(300);
  run_in_process(
      2,
      [](Context& context) {
        Model model(context, counts);
        GradientReducer reducer(context, model.buffer.gradients(), {.gradients = GradientKind::sum});
        std::thread([&] {
          for (std::size_t g = 0; g < counts.size(); ++g) {
            if (context.rank() == 0 || g != 3) reducer.ready(g);
          }
        }).join();
        expect_error(ErrorCode::invalid_argument, {"rank 1", "gradient 3 ('g3')", "not made ready"},
                     [&] { reducer.wait(1); });
      },
      options);
}

// An error would name the collective that failed, but not the part of the model.
TEST(GradientReducer, ErrorsOfABucketNameItsGradients) {
  const auto run = [](Context& context) {
    Model model(context, counts);
    GradientReducer reducer(context, model.buffer.gradients(),
                            {.gradients = GradientKind::sum, .bucket_bytes = 100});
    for (std::size_t g = counts.size(); g-- > 4;) reducer.ready(g);
    if (context.rank() == 1) context.communicator().barrier();
    for (std::size_t g = 4; g-- > 0;) reducer.ready(g);
    reducer.wait(1);
  };
  EXPECT_THROW(run_in_process(2,
                              [&](Context& context) {
                                try {
                                  run(context);
                                } catch (const Error& error) {
                                  const std::string text = error.what();
                                  if (context.rank() == 0) {
                                    EXPECT_NE(text.find("GradientReducer: bucket "), text.npos) << text;
                                    EXPECT_NE(text.find("(gradient 'g"), text.npos) << text;
                                  }
                                  throw;
                                }
                              }),
               Error);
}

// Finding the layer in which a rank hangs would take hours.
TEST(GradientReducer, TheExitReportNamesTheGradientThatAPeerWaitsFor) {
  InProcessOptions options;
  options.context.deadline = std::chrono::milliseconds(300);
  std::atomic<bool> is_over = false;
  std::string text;
  EXPECT_THROW(run_in_process(
                   2,
                   [&](Context& context) {
                     Model model(context, counts);
                     GradientReducer reducer(context, model.buffer.gradients(),
                                             {.gradients = GradientKind::sum, .bucket_bytes = 100});
                     for (std::size_t g = counts.size(); g-- > 0;) {
                       if (context.rank() == 1 && g == 1) break;
                       reducer.ready(g);
                     }
                     if (context.rank() == 1) {
                       while (!is_over) std::this_thread::yield();
                       return;
                     }
                     try {
                       reducer.wait(1);
                     } catch (const Error& error) {
                       text = error.what();
                       is_over = true;
                       throw;
                     }
                   },
                   options),
               Error);
  EXPECT_NE(text.find("rank 1"), text.npos) << text;
  EXPECT_NE(text.find("in backward: gradient 'g1' is not ready"), text.npos) << text;
}

/// The hash of the plans in a reducer's state.
std::string plans_of(const GradientReducerOptions& reducer_options, const std::vector<int>& hosts,
                     const std::vector<topology::Plan>& plans) {
  std::string found;
  InProcessOptions options = on_hosts(hosts);
  options.context.plans = plans;
  const int ranks = static_cast<int>(options.hosts.size());
  run_in_process(
      ranks,
      [&](Context& context) {
        Model model(context, counts);
        GradientReducer reducer(context, model.buffer.gradients(), reducer_options);
        for (std::size_t step = 0; step < 2; ++step) {
          model.backward(context.rank(), step);
          for (std::size_t g = 0; g < counts.size(); ++g) reducer.ready(g);
          reducer.wait(1);
        }
        const std::string state = reducer.state();
        const std::size_t at = state.find("\"plans\"");
        ASSERT_NE(at, std::string::npos) << state;
        const std::string own = state.substr(at, state.find_first_of(",}", at) - at);
        if (context.is_root()) found = own;
        context.communicator().barrier();
        EXPECT_EQ(own, found) << "rank " << context.rank();
        context.communicator().barrier();
      },
      options);
  return found;
}

topology::Plan plan_for(topology::Collective collective, int ranks, topology::Algorithm algorithm) {
  topology::Plan plan;
  plan.collective = collective;
  plan.decomposition = topology::Decomposition({ranks}, {});
  plan.dimensions = {{.algorithm = algorithm}};
  plan.order.resize(static_cast<std::size_t>(ranks));
  std::iota(plan.order.begin(), plan.order.end(), 0);
  return plan;
}

/// The log would not tell the user of a resumed run that its sums may differ in their last bits, or would
/// warn without need.
TEST(GradientReducer, TheStateTellsThePlansThatBucketsAreReducedBy) {
  using topology::Algorithm;
  using topology::Collective;
  const auto with = [](const GradientReducerOptions& options, Collective collective, Algorithm algorithm) {
    return plans_of(options, {4}, {plan_for(collective, 4, algorithm)});
  };
  const GradientReducerOptions dense = {.gradients = GradientKind::sum, .bucket_bytes = 400};
  EXPECT_NE(with(dense, Collective::all_reduce, Algorithm::ring),
            with(dense, Collective::all_reduce, Algorithm::two_shot));
  EXPECT_EQ(with(dense, Collective::reduce_scatter, Algorithm::ring),
            with(dense, Collective::reduce_scatter, Algorithm::two_shot));
  GradientReducerOptions sharded = dense;
  sharded.sharded_update = true;
  EXPECT_NE(with(sharded, Collective::reduce_scatter, Algorithm::ring),
            with(sharded, Collective::reduce_scatter, Algorithm::two_shot));
  EXPECT_EQ(with(sharded, Collective::all_reduce, Algorithm::ring),
            with(sharded, Collective::all_reduce, Algorithm::two_shot));
  GradientReducerOptions narrow = dense;
  narrow.wire = DataType::bf16;
  // The ranks of both hosts agree although their groups have different plans.
  EXPECT_NE(plans_of(narrow, {3, 1}, {}), plans_of(dense, {3, 1}, {}));
}

// A model would learn nothing because a vector of gradients has grown and moved.
TEST(GradientReducerModes, ChecksFindMemoryThatIsNotTheTrainersAnyMore) {
  InProcessOptions options;
  options.context.check = true;
  const auto body = [](Context& context) {
    std::vector<float> moves(100), stays(50);
    GradientReducer reducer(context, {{"moves", moves}, {"stays", stays}}, {.gradients = GradientKind::sum});
    const auto fill = [&](float value) {
      std::ranges::fill(moves, value);
      std::ranges::fill(stays, value);
    };
    for (int step = 1; step < 4; ++step) {
      fill(static_cast<float>(step));
      reducer.ready(1);
      reducer.ready(0);
      reducer.wait(1.0);
    }
    std::vector<float> registered(moves);
    registered.swap(moves);  // as if the vector had grown
    fill(7);
    reducer.ready(1);
    expect_error(ErrorCode::invalid_argument, {"gradient 0 ('moves'): it holds just what the last step left"},
                 [&] { reducer.ready(0); });
    std::ranges::fill(registered, 7.0F);
    stays[3] = 8;
    expect_error(ErrorCode::invalid_argument,
                 {"gradient 1 ('stays'): it was written to after it was reported as ready"}, [&] {
                   reducer.ready(0);
                   reducer.wait(1.0);
                 });
  };
  run_in_process(1, body, options);
}

// One rank would train another model than the same program without the library.
TEST(GradientReducerModes, MeansOfOneRankStayAsTheyAre) {
  run_in_process(1, [](Context& context) {
    std::vector<float> apart(333), block(200);
    const std::vector<Gradient> gradients = {
        {"apart", apart}, {"first", std::span(block).first(100)}, {"second", std::span(block).subspan(100)}};
    GradientReducer reducer(context, gradients, {.gradients = GradientKind::mean, .bucket_bytes = 256});
    for (std::size_t step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < apart.size(); ++i) apart[i] = value_of(0, step, 0, i) / 7;
      for (std::size_t i = 0; i < block.size(); ++i) block[i] = value_of(0, step, 1, i) / 3;
      const std::vector<float> apart_before = apart, block_before = block;
      double squares = 0;
      for (const float value : apart) squares += static_cast<double>(value) * value;
      for (const float value : block) squares += static_cast<double>(value) * value;
      reducer.begin(41);
      for (const std::size_t index : {2U, 0U, 1U}) reducer.ready(index);
      const ReducedStep result = reducer.wait();
      EXPECT_EQ(apart, apart_before);
      EXPECT_EQ(block, block_before);
      EXPECT_EQ(result.weight, 41);
      EXPECT_NEAR(result.norm, std::sqrt(squares), 1e-6 * std::sqrt(squares));
    }
    reducer.begin(0);
    for (const std::size_t index : {2U, 0U, 1U}) reducer.ready(index);
    expect_error(ErrorCode::invalid_argument, {"the total weight"}, [&] { reducer.wait(); });
  });
}

// A trainer that makes a new reducer in each epoch would fill the log with the same line.
TEST(GradientReducerModes, BucketsAreLoggedOnceForTheSameLayout) {
  InProcessOptions options;
  options.context.debug_level = 1;
  testing::internal::CaptureStderr();
  const auto body = [](Context& context) {
    std::vector<float> first(150'000), second(794);
    for (int epoch = 0; epoch < 2; ++epoch) {
      GradientReducer reducer(context, {{"a", first}, {"b", second}},
                              {.gradients = GradientKind::sum, .bucket_bytes = 400'000});
    }
    GradientReducer other(context, {{"b", second}}, {.gradients = GradientKind::sum, .bucket_bytes = 4000});
  };
  run_in_process(1, body, options);
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line = "info: 2 gradients, 603,176 bytes, in 2 buckets of at most 400,000 bytes\n";
  EXPECT_NE(log.find(line), log.npos) << log;
  EXPECT_EQ(log.find(line), log.rfind(line)) << log;
  EXPECT_NE(log.find("info: 1 gradient, 3,176 bytes, in 1 bucket of at most 4,000 bytes\n"), log.npos) << log;
}

// A rank that forgets backward would shrink all gradients, and nothing would say so.
TEST(GradientReducerModes, ARankWithAWeightAndNoGradientsIsWarnedOf) {
  for (const double weight : {2.0, 0.0}) {
    testing::internal::CaptureStderr();
    run_in_process(2, [&](Context& context) {
      std::vector<float> values(3);
      GradientReducer reducer(context, {{"w", values}}, {.gradients = GradientKind::mean});
      for (int step = 0; step < 2; ++step) {
        reducer.begin(context.rank() == 1 ? weight : 1);
        context.rank() == 1 ? reducer.absent(0) : reducer.ready(0);
        reducer.wait();
      }
    });
    const std::string log = testing::internal::GetCapturedStderr();
    const std::string warning = "ddl [1] warning: gradient reducer: rank 1 has weight 2 in this step";
    const std::size_t found = log.find(warning);
    EXPECT_EQ(found != log.npos, weight > 0) << log;
    EXPECT_EQ(log.rfind(warning), found) << log;
  }
}

// A trainer whose vectors are resized would have to make a new reducer, which learns the order again.
TEST(GradientReducerModes, RebindFollowsVectorsThatMove) {
  InProcessOptions options = on_hosts({1, 1});
  options.context.check = true;
  const auto body = [](Context& context) {
    std::vector<float> block(20), elsewhere(10), other(10), summand(10);
    const auto gradients = [](std::span<float> first, std::span<float> second) {
      return std::vector<Gradient>{{"a", first}, {"b", second}};
    };
    const std::span<float> both(block);
    GradientReducer reducer(context, gradients(both.first(10), both.subspan(10)),
                            {.gradients = GradientKind::sum, .bucket_bytes = 40, .wire = DataType::bf16});
    const auto step = [&](std::span<float> first, std::span<float> second, float value) {
      std::ranges::fill(first, value);
      std::ranges::fill(second, 2 * value);
      reducer.ready(0);
      expect_error(ErrorCode::invalid_argument, {"rebind: found a step that has begun", "wait()"},
                   [&] { reducer.rebind(gradients(first, second)); });
      reducer.ready(1);
      reducer.wait(1.0);
      for (std::size_t i = 0; i < first.size(); ++i) {
        ASSERT_EQ(first[i], value);
        ASSERT_EQ(second[i], 2 * value);
      }
    };
    step(both.first(10), both.subspan(10), 1);
    step(both.first(10), both.subspan(10), 2);
    const std::string learned = reducer.state();
    reducer.rebind(gradients(elsewhere, other));
    step(elsewhere, other, 3);
    reducer.rebind({{"a", both.first(10)}, {.name = "b", .values = other, .summands = {summand}}});
    step(both.first(10), other, 4);
    EXPECT_EQ(reducer.state(), learned);
    EXPECT_FALSE(reducer.residuals().empty());
    expect_error(ErrorCode::invalid_argument, {"'b' of 9 f32", "expected 'b' of 10 f32"},
                 [&] { reducer.rebind(gradients(elsewhere, std::span(other).first(9))); });
    expect_error(ErrorCode::invalid_argument, {"found 1 gradients, expected the 2"}, [&] {
      reducer.rebind({{"a", elsewhere}});
    });
    expect_error(ErrorCode::invalid_argument, {"overlap"},
                 [&] { reducer.rebind(gradients(elsewhere, elsewhere)); });
    step(both.first(10), other, 5);  // the refused ones have changed nothing
  };
  run_in_process(2, body, options);
}

// DDL_CHECK would accuse correct trainers whose gradients are larger than a bucket: their pieces are reduced,
// and so change, one after the other.
TEST(GradientReducerModes, ChecksAllowThatGradientsAreCutIntoBuckets) {
  InProcessOptions options;
  options.context.check = true;
  for (const int ranks : {1, 2}) {
    for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
      for (const bool is_flat : {true, false}) {
        run_in_process(
            ranks,
            [&](Context& context) {
              std::vector<float> block(400), first(200), second(200);
              const std::vector<Gradient> gradients =
                  is_flat ? std::vector<Gradient>{{"a", std::span(block).first(200)},
                                                  {"b", std::span(block).subspan(200)}}
                          : std::vector<Gradient>{{"a", first}, {"b", second}};
              GradientReducer reducer(context, gradients, {.gradients = kind, .bucket_bytes = 256});
              for (int step = 0; step < 4; ++step) {
                reducer.begin(3 + context.rank());
                for (const std::size_t index : {1U, 0U}) {
                  const std::span<float> values = gradients[index].values.as<float>();
                  std::ranges::fill(values, static_cast<float>(step + 1 + context.rank()));
                  reducer.ready(index);
                }
                reducer.wait();
              }
            },
            options);
      }
    }
  }
  // A piece whose reduction has not started is still looked after.
  const auto body = [](Context& context) {
    std::vector<float> block(380);
    GradientReducer reducer(context,
                            {{"a", std::span(block).first(100)}, {"b", std::span(block).subspan(100)}},
                            {.gradients = GradientKind::sum, .bucket_bytes = 256});
    std::ranges::fill(block, 1.0F);
    reducer.ready(1);
    block[101] = 2;  // in the bucket that waits for "a"
    expect_error(ErrorCode::invalid_argument,
                 {"gradient 1 ('b'): it was written to after it was reported as ready"}, [&] {
                   reducer.ready(0);
                   reducer.wait(1.0);
                 });
  };
  run_in_process(1, body, options);
}

// DDL_CHECK would end trainers that keep a gradient for each sample with an error that is not theirs.
TEST(GradientReducerModes, ChecksAllowThatReadyAddsSummands) {
  InProcessOptions options;
  options.context.check = true;
  const auto body = [](Context& context) {
    std::vector<float> first(50), second(50), dense(100);
    GradientReducer reducer(context, {{"dense", dense}, {.name = "w", .values = first, .summands = {second}}},
                            {.gradients = GradientKind::sum});
    const auto backward = [&](float value) {
      std::ranges::fill(first, 2.0F);
      std::ranges::fill(second, value);
      std::ranges::fill(dense, value);
      reducer.ready(1);
    };
    for (int step = 3; step < 6; ++step) {
      backward(static_cast<float>(step));
      reducer.ready(0);
      reducer.wait(2.0);
      EXPECT_EQ(first[49], static_cast<float>(2 + step) / 2);
    }
    backward(7);
    first[7] = -1;
    expect_error(ErrorCode::invalid_argument,
                 {"gradient 1 ('w'): it was written to after it was reported as ready"}, [&] {
                   reducer.ready(0);
                   reducer.wait(2.0);
                 });
  };
  run_in_process(1, body, options);
}

}  // namespace
}  // namespace ddl
