// Models whose activations and gradients have 16 bits, against the same model in fp64: what rounding does to
// the loss and to gradients, for every model, and whether its errors cancel over batches.

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

TestModel mixed(const ModelShape& shape, const BatchLimits& limits, double weight) {
  constexpr ddl::DataType narrow = ddl::DataType::bf16;
  return {make_cpu_backend(1), shape, limits, weight, {.activations = narrow, .gradients = narrow}};
}

class MixedPrecision : public testing::TestWithParam<ModelCase> {};

TEST_P(MixedPrecision, LossAndGradientsAreNearThoseOfFp64) {
  const Corpus corpus = small_corpus();
  const Batch batch(corpus, 0, 4);
  TestModel model = mixed(GetParam().shape, small_limits(), 0.3);
  TestModel reference(make_reference_backend(), GetParam().shape, small_limits(), 0.3);
  const BatchLoss expected = reference.run(batch.view, GetParam());
  const BatchLoss actual = model.run(batch.view, GetParam());
  EXPECT_NEAR(actual.smoothed, expected.smoothed, 5e-3 * expected.smoothed);
  const std::vector<Values> gradients = model.gradients(), exact = reference.gradients();
  // Dividing by the deviation of few values makes roundings larger.
  const double more = GetParam().shape.unit == UnitType::layer_norm_lstm ? 4 : 1;
  EXPECT_LE(std::sqrt(squared_distance(gradients, exact) / squares(exact)), more * 1e-2);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const double error = std::sqrt(squared_distance({gradients[i]}, {exact[i]}));
    EXPECT_LE(error, more * 5e-2 * std::sqrt(squares({exact[i]})) + 1e-4 * std::sqrt(squares(exact)))
        << model.name(i);
  }
}

// A power of two changes no bits but the exponent.
TEST_P(MixedPrecision, AScaledLossHasScaledGradients) {
  const Corpus corpus = small_corpus();
  const Batch batch(corpus, 0, 4);
  TestModel model = mixed(GetParam().shape, small_limits(), 0.3);
  const BatchLoss loss = model.run(batch.view, GetParam());
  const std::vector<Values> gradients = model.gradients();
  const double scale = 1024;
  model->scale_loss(&scale);
  EXPECT_EQ(model.run(batch.view, GetParam()).smoothed, loss.smoothed);
  const std::vector<Values> found = scaled(model.gradients(), 1.0 / 1024);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    EXPECT_TRUE(close(found[i], gradients[i], 0)) << model.name(i);
}

INSTANTIATE_TEST_SUITE_P(Models, MixedPrecision, testing::ValuesIn(model_cases()),
                         [](const auto& test) { return test.param.name; });

// The roundings of activations differ from batch to batch and cancel. Those of the parameters are the same in
// all of them, and stay: over 1,000 batches gradients are too long or too short by up to 2.3e-3 in models of
// 6 and 10 units, and by less than 5e-4 in those of 16 to 32 units (20 shapes were measured). One batch is
// off by 4e-3.
TEST(MixedPrecision, ErrorsCancelOverManyBatches) {
  for (const auto& [units, decoder_layers, bound] :
       {std::tuple(10, 2, 3e-3), std::tuple(24, 1, 1e-3), std::tuple(24, 2, 1e-3)}) {
    const ModelCase c{"", shape_of(units, true, 2, decoder_layers, AttentionKind::scaled_luong)};
    const BatchLimits limits{4, 5, 6};
    TestModel model = mixed(c.shape, limits, 0.2);
    TestModel reference(make_reference_backend(), c.shape, limits, 0.2);
    Random random(5);
    double along = 0, exact_squares = 0;
    for (int b = 0; b < 1000; ++b) {
      Corpus corpus;
      for (int s = 0; s < 2; ++s) {
        corpus.sources.push_back(random.integers(1 + s, 3, 10));
        corpus.targets.push_back(random.integers(5 - s, 3, 8));
        corpus.samples.push_back(2 * b + s);
      }
      const Batch batch(corpus, 0, 2);
      model.run(batch.view, c);
      reference.run(batch.view, c);
      const std::vector<Values> exact = reference.gradients();
      along += products(model.gradients(), exact);
      exact_squares += squares(exact);
    }
    EXPECT_NEAR(along / exact_squares, 1, bound)
        << units << " units, " << decoder_layers << " decoder layers";
  }
}

}  // namespace
}  // namespace nmt::test
