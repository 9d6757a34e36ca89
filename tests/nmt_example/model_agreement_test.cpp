// Whole models on the backends under test against the reference. Otherwise operations that are right by
// themselves would be wrong in the order or with the strides that models use.

#include <tuple>

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

}  // namespace
}  // namespace nmt::test
