// Whole models on the backends under test against the reference. Otherwise operations that are right by
// themselves would be wrong in the order or with the strides that models use.

#include <tuple>

#include "nmt_example/data/vocabulary.hpp"
#include "nmt_example/inference/model_scorer.hpp"
#include "nmt_example/model_test_support.hpp"

namespace nmt::test {
namespace {

class ModelAgreement : public testing::TestWithParam<std::tuple<BackendCase, ModelCase>> {
 protected:
  const BackendCase& backend() const { return std::get<0>(GetParam()); }
  const ModelCase& model_case() const { return std::get<1>(GetParam()); }
};

TEST_P(ModelAgreement, LossAndGradientsAreTheReferences) {
  TestModel model(make_or_skip(backend()), model_case().shape, small_limits());
  if (IsSkipped()) return;
  TestModel reference(make_reference_backend(), model_case().shape, small_limits());
  const Corpus corpus = small_corpus();
  const Batch batch(corpus, 0, 4);
  const BatchLoss expected = reference.run(batch.view, model_case());
  const BatchLoss actual = model.run(batch.view, model_case());
  EXPECT_NEAR(actual.smoothed, expected.smoothed, 64 * fp32_roundoff * expected.smoothed);
  EXPECT_NEAR(actual.negative_log_likelihood, expected.negative_log_likelihood,
              64 * fp32_roundoff * expected.negative_log_likelihood);
  const std::vector<Values> expected_gradients = reference.gradients();
  const std::vector<Values> gradients = model.gradients();
  // Dividing by the deviation of few values makes roundings larger.
  const double roundings = model_case().shape.unit == UnitType::layer_norm_lstm ? 512 : 64;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    EXPECT_TRUE(close(gradients[i], expected_gradients[i],
                      roundings * fp32_roundoff * std::max(expected_gradients[i].largest(), 0.1)))
        << model.name(i);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelAgreement,
                         testing::Combine(testing::ValuesIn(fp32_backends()),
                                          testing::ValuesIn(model_cases())),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + std::get<1>(test.param).name;
                         });

class LargerModelAgreement : public testing::TestWithParam<BackendCase> {};

TEST_P(LargerModelAgreement, LossAndGradientsAreTheReferences) {
  ModelCase c{"larger", shape_of(67, true, 2, 2, AttentionKind::scaled_luong), 0.2, 0.1};
  c.shape.source_vocabulary = 129;
  c.shape.target_vocabulary = 301;
  Random random(3);
  Corpus corpus;
  for (int b = 0; b < 17; ++b) {
    corpus.sources.push_back(random.integers(1 + b % 9, 3, 128));
    corpus.targets.push_back(random.integers((b * 5) % 8, 3, 300));
    corpus.samples.push_back(1000 - b);
  }
  const Batch batch(corpus, 0, 17);
  const BatchLimits limits{20, 12, 12};
  TestModel model(make_or_skip(GetParam()), c.shape, limits, 0.2);
  if (IsSkipped()) return;
  TestModel reference(make_reference_backend(), c.shape, limits, 0.2);
  const BatchLoss expected = reference.run(batch.view, c);
  const std::vector<Values> expected_gradients = reference.gradients();
  const BatchLoss actual = model.run(batch.view, c);
  EXPECT_NEAR(actual.smoothed, expected.smoothed, 64 * fp32_roundoff * expected.smoothed);
  const std::vector<Values> gradients = model.gradients();
  for (std::size_t i = 0; i < gradients.size(); ++i)
    EXPECT_TRUE(close(gradients[i], expected_gradients[i],
                      256 * fp32_roundoff * std::max(expected_gradients[i].largest(), 0.01)))
        << model.name(i);
  model.run(batch.view, c);
  const std::vector<Values> again = model.gradients();
  for (std::size_t i = 0; i < gradients.size(); ++i)
    EXPECT_TRUE(close(again[i], gradients[i], 0)) << model.name(i) << " has other bits the second time";
}

INSTANTIATE_TEST_SUITE_P(Backends, LargerModelAgreement, testing::ValuesIn(fp32_backends()),
                         [](const auto& test) { return test.param.name; });

class SeveralModels : public testing::TestWithParam<BackendCase> {};

// Models that translate together would not be heard all alike, or their words would be those of one.
TEST_P(SeveralModels, AverageTheirProbabilities) {
  constexpr int width = 3;
  const std::shared_ptr<Backend> backend = make_or_skip(GetParam());
  if (IsSkipped()) return;
  ModelShape shape = shape_of(16, true, 2, 2, AttentionKind::scaled_luong);
  shape.target_vocabulary = 1501;
  std::vector<std::unique_ptr<TestModel>> models;
  for (const double weight : {1.5, 0.7, 0.4})
    models.push_back(std::make_unique<TestModel>(backend, shape, BatchLimits{1, 1, 1}, weight));
  const std::vector<std::int32_t> source{3, 4, 5, 6}, lengths{2, 2}, parents{0, 0, 1}, words{3, 4, 5};
  const auto rows = static_cast<std::int64_t>(parents.size());
  BatchView batch;
  batch.sentences = batch.source_steps = 2;
  batch.source = source;
  batch.source_lengths = lengths;
  std::vector<SearchModel> searches;
  searches.reserve(models.size());
  for (const auto& model : models) searches.emplace_back(model->model(), width).start(batch);
  ModelScorer scorer(searches);
  scorer.step(std::vector<std::int32_t>{0, 1}, std::vector<std::int32_t>{1, 1});
  scorer.step(parents, words);

  Memory memory(*backend);
  Values probabilities(rows, shape.target_vocabulary);
  for (SearchModel& search : searches) {
    const Values of_one = memory.read(search.log_probabilities()).map([](double x) { return std::exp(x); });
    for (std::size_t i = 0; i < of_one.data.size(); ++i) probabilities.data[i] += of_one.data[i] / 3;
  }
  const Values expected = probabilities.map([](double x) { return std::log(x); });
  const std::size_t known = width + 2, each = 2 * known + 1;
  const std::span<const double> best = scorer.best_words();
  ASSERT_EQ(best.size(), parents.size() * each);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto found = best.subspan(static_cast<std::size_t>(r) * each, each);
    std::vector<double> row(expected.data.begin() + r * expected.cols,
                            expected.data.begin() + (r + 1) * expected.cols);
    EXPECT_NEAR(found.back(), row[Vocabulary::eos_id], 1e-5);
    for (std::size_t k = 0; k < known; ++k)
      EXPECT_NEAR(row[static_cast<std::size_t>(found[k])], found[known + k], 1e-5);
    std::ranges::sort(row, std::greater());
    for (std::size_t k = 0; k < known; ++k) EXPECT_NEAR(found[known + k], row[k], 1e-5);
  }

  for (const double temperature : {0.7, 1.0}) {
    for (double number = 0; number < 1; number += 0.0625) {
      const std::vector<double> numbers(parents.size(), number);
      const std::span<const double> drawn = scorer.draw_words(numbers, temperature);
      ASSERT_EQ(drawn.size(), 2 * parents.size());
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto weight = [&](std::int64_t word) {
          return word == Vocabulary::bos_id ? 0 : std::pow(probabilities(r, word), 1 / temperature);
        };
        const auto word = static_cast<std::int64_t>(drawn[static_cast<std::size_t>(2 * r)]);
        double before = 0, all = 0;
        for (std::int64_t v = 0; v < expected.cols; ++v) {
          if (v < word) before += weight(v);
          all += weight(v);
        }
        EXPECT_LE(before, number * all + 1e-5 * all);
        EXPECT_GE(before + weight(word), number * all - 1e-5 * all);
        EXPECT_NEAR(drawn[static_cast<std::size_t>(2 * r + 1)], expected(r, word), 1e-5);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SeveralModels, testing::ValuesIn(backends_under_test()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nmt::test
