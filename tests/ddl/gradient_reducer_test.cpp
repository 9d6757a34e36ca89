#include "ddl/gradient_reducer.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "support/allocation_count.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::expect_parts;

constexpr std::size_t sizes[] = {7, 1, 0, 64, 300, 5, 1000};

enum class Layout { flat, scattered, partly };

/// One rank's gradients, in one buffer or in several.
struct Gradients {
  explicit Gradients(Layout layout) {
    const std::size_t total = std::accumulate(std::begin(sizes), std::end(sizes), std::size_t{0});
    memory.resize(2 * total + 64);
    std::size_t at = 0;
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
      if (layout == Layout::scattered || (layout == Layout::partly && i % 3 == 1)) at += 2;
      registered.push_back({fmt::format("g{}", i), std::span(memory).subspan(at, sizes[i])});
      at += sizes[i];
    }
  }
  std::vector<float> memory;
  std::vector<Gradient> registered;
};

/// An arbitrary value for the gradient of one item.
double item_gradient(std::size_t item, std::size_t gradient, std::size_t element) {
  return std::sin(1.0 + static_cast<double>(item * 31 + gradient * 7 + element));
}

/// Numbers of items differ between ranks; rank 1 has none.
std::size_t items_of(int rank) { return rank == 1 ? 0 : 3 + static_cast<std::size_t>(rank) * 5 % 7; }

std::size_t first_item_of(int rank) {
  std::size_t first = 0;
  for (int r = 0; r < rank; ++r) first += items_of(r);
  return first;
}

/// Writes sums or means over this rank's items; the mean of no items is NaN.
void backward(Gradients& gradients, int rank, GradientKind kind) {
  for (std::size_t g = 0; g < gradients.registered.size(); ++g) {
    for (std::size_t e = 0; e < sizes[g]; ++e) {
      double sum = 0;
      for (std::size_t i = 0; i < items_of(rank); ++i) sum += item_gradient(first_item_of(rank) + i, g, e);
      if (kind == GradientKind::mean) sum /= static_cast<double>(items_of(rank));
      gradients.registered[g].values.as<float>()[e] = static_cast<float>(sum);
    }
  }
}

double step(GradientReducer& reducer, GradientKind kind, double weight) {
  if (kind == GradientKind::mean) reducer.begin(weight);
  for (std::size_t g = std::size(sizes); g-- > 0;) reducer.ready(g);
  return (kind == GradientKind::mean ? reducer.wait() : reducer.wait(weight)).weight;
}

void expect_mean(const Gradients& gradients, int ranks) {
  const std::size_t items = first_item_of(ranks);
  for (std::size_t g = 0; g < std::size(sizes); ++g) {
    for (std::size_t e = 0; e < sizes[g]; ++e) {
      double sum = 0;
      double magnitude = 0;
      for (std::size_t i = 0; i < items; ++i) {
        sum += item_gradient(i, g, e);
        magnitude += std::abs(item_gradient(i, g, e));
      }
      const double n = static_cast<double>(items);
      const double bound =
          (ranks + 3) * 0x1p-24 * magnitude / n;  // roundings: one on each rank, one per hop, the final one
      const double found = gradients.registered[g].values.as<float>()[e];
      ASSERT_TRUE(std::abs(found - sum / n) <= bound)
          << found << " is not " << sum / n << ", gradient " << g << " element " << e;
    }
  }
}

/// Runs `body` on all ranks and expects an Error on each; returns their texts by rank.
std::vector<std::string> errors_on_all(int ranks, ErrorCode code, const std::function<void(Context&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_in_process(ranks, [&](Context& context) {
    try {
      body(context);
      ADD_FAILURE() << "no error on rank " << context.rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      texts[static_cast<std::size_t>(context.rank())] = error.what();
    }
  });
  return texts;
}

// Gradients would be wrong. Covers ragged batches, an empty one, all layouts, several hosts and two steps.
TEST(GradientReducer, MeanOverAllItemsOfAllRanks) {
  for (const int ranks : {1, 2, 3, 4, 7, 16}) {
    for (const std::size_t hosts : {1, 2, 3}) {
      InProcessOptions options;
      for (int rank = 0; hosts > 1 && rank < ranks; ++rank) {
        options.hosts.push_back(fmt::format("host{}", static_cast<std::size_t>(rank) % hosts));
      }
      for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
        run_in_process(
            ranks,
            [&](Context& context) {
              const auto layout = static_cast<Layout>(context.rank() % 3);  // differs between ranks
              Gradients gradients(layout);
              GradientReducer reducer(context, gradients.registered,
                                      {.gradients = kind, .bucket_bytes = 1300});
              EXPECT_EQ(reducer.bytes(), 1377 * sizeof(float));
              EXPECT_EQ(reducer.buckets(), 5u);
              for (int i = 0; i < 2; ++i) {
                backward(gradients, context.rank(), kind);
                const auto weight = static_cast<double>(items_of(context.rank()));
                EXPECT_EQ(step(reducer, kind, weight), static_cast<double>(first_item_of(ranks)));
                expect_mean(gradients, ranks);
              }
            },
            options);
      }
    }
  }
}

// Ranks would drift apart, and runs could not be repeated.
TEST(GradientReducer, AllRanksAndAllRunsHaveTheSameBits) {
  std::vector<std::vector<float>> results;
  std::mutex mutex;
  for (int run = 0; run < 2; ++run) {
    run_in_process(5, [&](Context& context) {
      Gradients gradients(run == 0 ? Layout::flat : Layout::scattered);
      GradientReducer reducer(context, gradients.registered,
                              {.gradients = GradientKind::sum, .bucket_bytes = 2000});
      backward(gradients, context.rank(), GradientKind::sum);
      step(reducer, GradientKind::sum, static_cast<double>(items_of(context.rank())));
      std::vector<float> values;
      for (const Gradient& gradient : gradients.registered) {
        const std::span<float> found = gradient.values.as<float>();
        values.insert(values.end(), found.begin(), found.end());
      }
      const std::lock_guard lock(mutex);
      results.push_back(values);
    });
  }
  ASSERT_EQ(results.size(), 10u);
  for (const auto& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

// Means that are integers would come out as 1.9999999.
TEST(GradientReducer, WholeMeansAreExact) {
  run_in_process(3, [](Context& context) {
    std::vector<float> values = {3.0f, 6.0f, 9.0f, -12.0f};
    GradientReducer reducer(context, {{"g", values}}, {.gradients = GradientKind::sum});
    reducer.ready(0);
    EXPECT_EQ(reducer.wait(1).weight, 3);
    EXPECT_EQ(values, (std::vector<float>{3, 6, 9, -12}));
  });
}

// A neighbour of the gradients in memory would be overwritten.
TEST(GradientReducer, NothingBetweenTheGradientsIsTouched) {
  run_in_process(2, [](Context& context) {
    Gradients gradients(Layout::partly);
    std::vector<bool> registered(gradients.memory.size());
    for (const Gradient& gradient : gradients.registered) {
      const auto at = gradient.values.as<float>().data() - gradients.memory.data();
      std::fill_n(registered.begin() + at, gradient.values.size(), true);
    }
    std::fill(gradients.memory.begin(), gradients.memory.end(), 5.0f);
    GradientReducer reducer(context, gradients.registered, {.gradients = GradientKind::sum});
    step(reducer, GradientKind::sum, 5);
    for (std::size_t i = 0; i < registered.size(); ++i) {
      EXPECT_EQ(gradients.memory[i], registered[i] ? 1.0f : 5.0f) << i;
    }
  });
}

// Step times would vary with allocations.
TEST(GradientReducer, AStepAllocatesNothingOrFewSmallBlocks) {
#ifdef DDL_SANITIZED
  GTEST_SKIP() << "a sanitizer has its own operator new";
#endif
  // First uses still allocate memory, so the smallest count of several steps is taken.
  const auto fewest_of = [](std::size_t bucket_bytes, GradientKind kind) {
    long fewest = std::numeric_limits<long>::max();
    run_in_process(2, [&](Context& context) {
      Gradients gradients(Layout::partly);
      GradientReducer reducer(context, gradients.registered,
                              {.gradients = kind, .bucket_bytes = bucket_bytes});
      for (int stretch = 0; stretch < 10; ++stretch) {
        for (int i = 0; i < 3; ++i) step(reducer, kind, 2);
        context.communicator().barrier();
        const long before = test::allocation_count();
        EXPECT_GT(before, 0) << "allocations are not counted";
        context.communicator().barrier();
        step(reducer, kind, 2);
        context.communicator().barrier();
        const long allocated = test::allocation_count() - before;
        context.communicator().barrier();
        if (context.is_root()) fewest = std::min(fewest, allocated);
      }
      EXPECT_EQ(reducer.buckets() == 1, bucket_bytes > 1300);
    });
    return fewest;
  };
  for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
    EXPECT_EQ(fewest_of(std::size_t{1} << 20, kind), 0) << "one bucket";
    EXPECT_LE(fewest_of(1300, kind), 2 * 5 * 8) << "two ranks, five buckets";
  }
}

TEST(GradientReducer, NoGradientsAtAllStillAgreeOnTheWeight) {
  run_in_process(3, [](Context& context) {
    GradientReducer reducer(context, {}, {.gradients = GradientKind::sum});
    EXPECT_EQ(reducer.buckets(), 0u);
    EXPECT_EQ(reducer.wait(context.rank()).weight, 3);
  });
}

// A model would be trained with gradients that are too large or too small by the batch size.
TEST(GradientReducer, WrongPairingSaysWhatToCall) {
  run_in_process(2, [](Context& context) {
    std::vector<float> a(3);
    std::vector<float> b(3);
    const auto fails = [](const std::vector<std::string>& parts, const auto& body) {
      test::expect_error(ErrorCode::invalid_argument, parts, body);
    };
    GradientReducer sums(context, {{"a", a}, {"b", b}}, {.gradients = GradientKind::sum});
    GradientReducer means(context, {{"a", a}, {"b", b}}, {.gradients = GradientKind::mean});
    fails({"wait()", "made for sums", "wait(weight)"}, [&] { sums.wait(); });
    sums.begin(2);
    fails({"wait(weight) after begin"}, [&] { sums.wait(2); });
    sums.ready(0);
    sums.ready(1);
    EXPECT_EQ(sums.wait().weight, 4);
    fails({"wait(weight)", "made for means", "begin"}, [&] { means.wait(2); });
    fails({"wait()", "without begin"}, [&] { means.wait(); });
    fails({"ready()", "before begin"}, [&] { means.ready(0); });
    means.begin(1);
    fails({"begin(weight): found a second call in a step"}, [&] { means.begin(1); });
    fails({"ready(2)", "only 2"}, [&] { means.ready(2); });
    means.ready(1);
    fails({"ready(1)", "'b'", "before"}, [&] { means.ready(1); });
    means.ready(0);
    EXPECT_EQ(means.wait().weight, 2);  // none of these errors has affected the step
    fails({"without begin"}, [&] { means.wait(); });
  });
}

// Peers would wait for ten minutes because one rank has bad data.
TEST(GradientReducer, ProblemOfOneRankEndsTheStepOnAll) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, nan, infinite}) {
    for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
      const auto texts = errors_on_all(3, ErrorCode::invalid_argument, [&](Context& context) {
        Gradients gradients(Layout::flat);
        GradientReducer reducer(context, gradients.registered, {.gradients = kind});
        step(reducer, kind, context.rank() == 2 ? bad : 4.0);
      });
      expect_parts(texts[0], {"rank 2", "the weight is"});
      EXPECT_EQ(texts[0], texts[1]);
      EXPECT_EQ(texts[0], texts[2]);
    }
  }
  const auto texts = errors_on_all(2, ErrorCode::invalid_argument, [&](Context& context) {
    std::vector<float> a(3, 1.0f);
    std::vector<float> b(3, 1.0f);
    GradientReducer reducer(context, {{"a", a}, {"b", b}}, {.gradients = GradientKind::sum});
    reducer.ready(0);
    if (context.rank() == 0) reducer.ready(1);
    try {
      reducer.wait(1);
    } catch (const Error& error) {
      EXPECT_TRUE(error.agreed());
      reducer.ready(0);  // the next step works
      reducer.ready(1);
      EXPECT_EQ(reducer.wait(1).weight, 2);
      throw;
    }
  });
  expect_parts(texts[0], {"rank 1", "gradient 1 ('b')", "not made ready"});
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(GradientReducer, TotalWeightOfZeroIsAnErrorEverywhere) {
  for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
    const auto texts = errors_on_all(4, ErrorCode::invalid_argument, [&](Context& context) {
      Gradients gradients(Layout::flat);
      GradientReducer reducer(context, gradients.registered, {.gradients = kind});
      step(reducer, kind, 0);
    });
    for (const std::string& text : texts) expect_parts(text, {"total weight of all 4 ranks is 0"});
  }
}

// Gradients of different parameters would be added to each other.
TEST(GradientReducer, OtherGradientsAreNamedWithTheirRanks) {
  const auto attempt =
      [](const std::function<void(int, std::vector<Gradient>&, GradientReducerOptions&)>& change) {
        const auto texts = errors_on_all(4, ErrorCode::mismatch, [&](Context& context) {
          Gradients gradients(Layout::flat);
          GradientReducerOptions options{.gradients = GradientKind::sum};
          change(context.rank(), gradients.registered, options);
          GradientReducer reducer(context, gradients.registered, options);
        });
        for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
        return texts[0];
      };
  expect_parts(attempt([](int rank, auto& gradients, auto&) {
                 if (rank >= 2) gradients[3].name = "other";
                 if (rank == 1) gradients[5].name = "later";
               }),
               {"gradient 3", "'g3' of 64 f32 on rank 0", "'other' of 64 f32 on rank 2", "2, 3"});
  expect_parts(attempt([](int rank, auto& gradients, auto&) {
                 if (rank == 1) gradients[4].values = gradients[4].values.first(299);
               }),
               {"gradient 4", "of 300 f32 on rank 0", "of 299 f32 on rank 1"});
  expect_parts(attempt([](int rank, auto& gradients, auto&) {
                 if (rank == 3) gradients.pop_back();
               }),
               {"gradient 6", "missing (6 in all) on rank 3"});
  expect_parts(attempt([](int rank, auto& gradients, auto&) {
                 if (rank == 0) gradients.clear();
               }),
               {"gradient 0", "missing (0 in all) on rank 0", "1, 2, 3"});
  expect_parts(attempt([](int rank, auto&, auto& options) {
                 if (rank == 1) options.gradients = GradientKind::mean;
               }),
               {"sums on rank 0", "means on rank 1"});
  expect_parts(attempt([](int rank, auto&, auto& options) {
                 if (rank == 1) options.bucket_bytes = 77;
               }),
               {"bucket_bytes 0 on rank 0", "bucket_bytes 77 on rank 1"});
}

TEST(GradientReducer, SharedMemoryRegisteredTwiceIsRefused) {
  const auto texts = errors_on_all(2, ErrorCode::invalid_argument, [](Context& context) {
    std::vector<float> memory(10);
    const std::span<float> all(memory);
    GradientReducer reducer(context, {{"source", all.first(6)}, {"target", all.subspan(5)}},
                            {.gradients = GradientKind::sum});
  });
  expect_parts(texts[1], {"'source'", "'target'", "overlap"});
}

}  // namespace
}  // namespace ddl
