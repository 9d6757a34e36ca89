// Sampled words against their distribution, and the sampled loss against tf.nn.sampled_softmax_loss's
// formula, written out here in fp64. Otherwise --num_sampled_softmax would minimise another loss than
// tensorflow/nmt's, which trains to wrong frequencies of words without any sign of it.

#include <map>
#include <numeric>
#include <set>

#include "nmt_example/backend_test_support.hpp"
#include "nmt_example/model/projection.hpp"

namespace nmt::test {
namespace {

double log_uniform_probability(std::int32_t word, std::int64_t vocabulary) {
  return (std::log(word + 2.0) - std::log(word + 1.0)) / std::log(static_cast<double>(vocabulary) + 1.0);
}

TEST(SampledWords, AreLogUniform) {
  constexpr std::int64_t vocabulary = 30;
  constexpr int steps = 40'000;
  SampledWords sampled(vocabulary, 1);
  std::vector<int> counts(vocabulary);
  for (std::uint64_t step = 0; step < steps; ++step) {
    sampled.draw(5, step);
    ++counts[static_cast<std::size_t>(sampled.ids()[0])];
  }
  double sum = 0;
  for (std::int32_t word = 0; word < vocabulary; ++word) {
    const double p = log_uniform_probability(word, vocabulary);
    sum += p;
    EXPECT_NEAR(counts[static_cast<std::size_t>(word)], p * steps, 5 * std::sqrt(p * (1 - p) * steps))
        << word;
  }
  EXPECT_NEAR(sum, 1, 1e-12);
}

// The logits would be corrected for other frequencies than those of the draws.
TEST(SampledWords, ExpectedCountsAreHowOftenWordsAreDrawn) {
  constexpr std::int64_t vocabulary = 40;
  constexpr int steps = 20'000;
  SampledWords sampled(vocabulary, 12);
  std::vector<double> counts(vocabulary), expected(vocabulary);
  for (std::uint64_t step = 0; step < steps; ++step) {
    sampled.draw(6, step);
    ASSERT_EQ(std::set<std::int32_t>(sampled.ids().begin(), sampled.ids().end()).size(), 12u);
    for (const std::int32_t id : sampled.ids()) ++counts[static_cast<std::size_t>(id)];
    for (std::int32_t word = 0; word < vocabulary; ++word) {
      const double p = log_uniform_probability(word, vocabulary);
      const double drawn = 1 - std::pow(1 - p, static_cast<double>(sampled.tries()));
      ASSERT_NEAR(sampled.expected_count(word), drawn, 1e-12);
      expected[static_cast<std::size_t>(word)] += drawn;
    }
  }
  // The number of draws depends on the words drawn, so that the formula is an approximation.
  for (std::size_t word = 0; word < counts.size(); ++word)
    EXPECT_NEAR(counts[word] / steps, expected[word] / steps, 0.03) << word;
}

// Ranks and resumed runs would compute with other words.
TEST(SampledWords, DependOnSeedAndStepAlone) {
  SampledWords a(1000, 50), b(1000, 50);
  const auto words = [](SampledWords& sampled, std::uint64_t seed, std::uint64_t step) {
    sampled.draw(seed, step);
    return std::vector<std::int32_t>(sampled.ids().begin(), sampled.ids().end());
  };
  const std::vector<std::int32_t> expected = words(a, 7, 9);
  const std::int32_t target = a.place_of(999);
  EXPECT_EQ(target, 50) << "one that is not drawn comes behind those that are";
  EXPECT_EQ(a.place_of(999), target);
  EXPECT_EQ(a.place_of(expected[3]), 3);
  EXPECT_NE(words(b, 7, 10), expected);
  EXPECT_NE(words(b, 8, 9), expected);
  EXPECT_NE(words(b, 7, 9 + (std::uint64_t{1} << 32)), expected);
  EXPECT_EQ(words(b, 7, 9), expected);
  EXPECT_EQ(words(a, 7, 9), expected) << "the step's targets must not stay";
}

TEST(SampledWords, MayBeTheWholeVocabulary) {
  SampledWords sampled(200, 200);
  sampled.draw(1, 1);
  std::vector<std::int32_t> words(sampled.ids().begin(), sampled.ids().end()), all(200);
  std::ranges::sort(words);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(words, all);
}

struct LossCase {
  BackendCase backend;
  bool tied, bias;
};

class SampledSoftmax : public testing::TestWithParam<LossCase> {
 protected:
  static constexpr std::int64_t units = 8, vocabulary = 50, rows = 60;
};

TEST_P(SampledSoftmax, IsTensorFlows) {
  const auto backend = make_or_skip(GetParam().backend);
  if (IsSkipped()) return;
  ModelShape shape;
  shape.target_vocabulary = vocabulary;
  shape.tie_output = GetParam().tied;
  shape.output_bias = GetParam().bias;
  shape.sampled_words = 12;
  ParameterLayout layout;
  OutputProjection projection(layout, shape, units);
  const auto bytes = static_cast<std::size_t>(layout.extent) * ddl::size_of(backend->type());
  const ParameterSet parameters(*backend, layout, backend->allocate(bytes));
  Arena arena(backend->type(), backend->type());
  projection.plan(arena, *backend, rows, true);
  arena.reserve(*backend, arena.used());
  projection.plan(arena, *backend, rows, true);

  Random random(3);
  Memory memory(*backend, Layout::contiguous);
  const Values x = random.values(rows, units);
  std::vector<Values> values, gradients;
  for (std::size_t i = 0; i < parameters.count(); ++i) {
    const Tensor value = parameters.value(i);
    values.push_back(random.values(value.rows, value.cols));
    gradients.emplace_back(value.rows, value.cols);
    memory.write(value, values.back());
  }
  const std::vector<std::int32_t> targets = random.integers(rows, 0, vocabulary - 1);
  std::vector<std::int32_t> all_rows(rows);
  std::iota(all_rows.begin(), all_rows.end(), 0);

  // The formula.
  SampledWords sampled(vocabulary, shape.sampled_words);
  sampled.draw(11, 13);
  double loss = 0;
  int hits = 0;
  Values d_x(rows, units);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int32_t target = targets[static_cast<std::size_t>(r)];
    std::map<std::int32_t, double> exponentials;
    double sum = 0;
    const auto compete = [&](std::int32_t word) {
      double logit = static_cast<float>(-std::log(sampled.expected_count(word)));  // uploaded in fp32
      for (std::int64_t u = 0; u < units; ++u) logit += x(r, u) * values[0](word, u);
      if (GetParam().bias) logit += values[1](0, word);
      sum += exponentials[word] = std::exp(logit);
    };
    compete(target);
    for (const std::int32_t word : sampled.ids()) word == target ? static_cast<void>(++hits) : compete(word);
    loss += std::log(sum / exponentials[target]);
    for (const auto& [word, exponential] : exponentials) {
      const double d_logit = exponential / sum - (word == target ? 1 : 0);
      for (std::int64_t u = 0; u < units; ++u) {
        gradients[0](word, u) += d_logit * x(r, u);
        d_x(r, u) += d_logit * values[0](word, u);
      }
      if (GetParam().bias) gradients[1](0, word) += d_logit;
    }
  }
  EXPECT_GT(hits, 0) << "no target is among the words drawn";
  EXPECT_LT(hits, rows) << "all targets are among the words drawn";

  std::vector<int> missing(parameters.count(), 1);
  const ReadyFunction ready = [](std::size_t) {};
  AddedGradients added;
  BackwardProgress progress{&ready, missing, added};
  const StepContext step{.backend = *backend,
                         .parameters = parameters,
                         .dropout = {0, 11, 13},
                         .samples = {},
                         .backward = &progress};
  const Tensor output = memory.tensor(x), d_output = memory.tensor(rows, units), sums = memory.sums(2);
  const double roundoff = backend->type() == ddl::DataType::f64 ? 1e-14 : 64 * fp32_roundoff;
  for (int times = 1; times <= 2; ++times) {  // gradients of micro-batches add up
    projection.loss(step, output, memory.indices(all_rows), memory.indices(targets), targets, 0, d_output,
                    nullptr, sums);
    EXPECT_NEAR(memory.read(sums)(0, 0), times * loss, times * loss * roundoff);
    EXPECT_NEAR(memory.read(sums)(0, 1), times * loss, times * loss * roundoff);
    EXPECT_TRUE(close(memory.read(d_output), d_x, roundoff * d_x.largest()));
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_TRUE(close(memory.read(parameters.gradient(i)), gradients[i].times(times),
                        times * roundoff * gradients[i].largest()))
          << layout.parameters[i].name;
    }
  }
}

std::vector<LossCase> loss_cases() {
  std::vector<LossCase> cases;
  for (const BackendCase& backend : backends_under_test())
    for (const bool tied : {false, true})
      for (const bool bias : {false, true}) cases.push_back({backend, tied, bias});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Backends, SampledSoftmax, testing::ValuesIn(loss_cases()), [](const auto& test) {
  return std::string(test.param.backend.name) + (test.param.tied ? "Tied" : "") +
         (test.param.bias ? "Bias" : "");
});

}  // namespace
}  // namespace nmt::test
