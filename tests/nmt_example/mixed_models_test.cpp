// Models whose activations have 16 bits, against the same model in fp64: what rounding does to the loss and
// to gradients, for every model. If these failed, training in mixed precision would go astray.

#include <cmath>
#include <tuple>

#include "nmt_example/model_test_support.hpp"

namespace nmt::test {
namespace {

double squares(const std::vector<Values>& values) {
  double sum = 0;
  for (const Values& x : values) sum += dot(x, x);
  return sum;
}

double products(const std::vector<Values>& a, const std::vector<Values>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += dot(a[i], b[i]);
  return sum;
}

/// |a - b|^2
double squared_distance(const std::vector<Values>& a, const std::vector<Values>& b) {
  return squares(a) + squares(b) - 2 * products(a, b);
}

std::vector<Values> scaled(std::vector<Values> values, double factor) {
  for (Values& x : values) x = x.times(factor);
  return values;
}

TestModel mixed(const BackendCase& backend, const ModelShape& shape) {
  std::unique_ptr<Backend> made = make_or_skip(backend);
  const ddl::DataType type = made->narrow_type();
  // As `model_types` has them.
  const ddl::DataType gradients = type == ddl::DataType::bf16 ? type : made->type();
  return {std::move(made), shape, small_limits(), 0.3, {.activations = type, .gradients = gradients}};
}

class MixedPrecision : public testing::TestWithParam<std::tuple<BackendCase, ModelCase>> {
 protected:
  const BackendCase& backend() { return std::get<0>(GetParam()); }
  const ModelCase& model() { return std::get<1>(GetParam()); }
};

TEST_P(MixedPrecision, LossAndGradientsAreNearThoseOfFp64) {
  const Corpus corpus = small_corpus();
  const Batch batch(corpus, 0, 4);
  TestModel mixed_model = mixed(backend(), model().shape);
  TestModel reference(make_reference_backend(), model().shape, small_limits(), 0.3);
  const BatchLoss expected = reference.run(batch.view, model());
  const BatchLoss actual = mixed_model.run(batch.view, model());
  EXPECT_NEAR(actual.smoothed, expected.smoothed, 5e-3 * expected.smoothed);
  const std::vector<Values> gradients = mixed_model.gradients(), exact = reference.gradients();
  // Dividing by the deviation of few values makes roundings larger.
  const double more = model().shape.unit == UnitType::layer_norm_lstm ? 4 : 1;
  EXPECT_LE(std::sqrt(squared_distance(gradients, exact) / squares(exact)), more * 1e-2);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const double error = std::sqrt(squared_distance({gradients[i]}, {exact[i]}));
    EXPECT_LE(error, more * 5e-2 * std::sqrt(squares({exact[i]})) + 1e-4 * std::sqrt(squares(exact)))
        << mixed_model.name(i);
  }
}

// A power of two changes no bits but the exponent.
TEST_P(MixedPrecision, AScaledLossHasScaledGradients) {
  const Corpus corpus = small_corpus();
  const Batch batch(corpus, 0, 4);
  TestModel mixed_model = mixed(backend(), model().shape);
  const BatchLoss loss = mixed_model.run(batch.view, model());
  const std::vector<Values> gradients = mixed_model.gradients();
  mixed_model->scale_loss(mixed_model.memory().sums(std::vector<float>{1024}).as<double>());
  EXPECT_EQ(mixed_model.run(batch.view, model()).smoothed, loss.smoothed);
  const std::vector<Values> found = scaled(mixed_model.gradients(), 1.0 / 1024);
  const bool is_f16 = mixed_model.memory().backend().narrow_type() == ddl::DataType::f16;
  double largest = 0;
  for (const Values& x : gradients) largest = std::max(largest, x.largest());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    // Small numbers of f16 have fewer bits.
    const double bound = is_f16 ? 5e-2 * gradients[i].largest() + 1e-3 * largest : 0;
    EXPECT_TRUE(close(found[i], gradients[i], bound)) << mixed_model.name(i);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MixedPrecision,
                         testing::Combine(testing::ValuesIn(narrow_backends()),
                                          testing::ValuesIn(model_cases())),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + std::get<1>(test.param).name;
                         });

}  // namespace
}  // namespace nmt::test
