// The optimisers' arithmetic on every backend. Otherwise training would follow another rule than the command
// line names, or clip by a wrong norm.

#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

class Optimizer : public testing::TestWithParam<BackendCase> {
 protected:
  double roundoff() const { return backend_->type() == ddl::DataType::f64 ? 0x1p-53 : fp32_roundoff; }

  std::unique_ptr<Backend> backend_ = make_or_skip(GetParam());
  Memory memory_{*backend_, Layout::contiguous};
  Random random_{23};
};

TEST_P(Optimizer, SgdStepsAgainstTheScaledGradient) {
  for (const std::int64_t cols : {1, 3, 17, 64, 129, 5000}) {
    const Values p = random_.values(3, cols);
    const Values g = random_.values(3, cols, -10, 10);
    const Tensor parameters = memory_.tensor(p);
    const Tensor gradients = memory_.tensor(g);
    memory_->sgd(parameters, gradients, 0.125, 0.3);
    Values expected = p, bound = p;
    for (std::size_t i = 0; i < p.data.size(); ++i) {
      const double change = 0.3 * 0.125 * g.data[i];
      expected.data[i] = p.data[i] - change;
      bound.data[i] = 4 * roundoff() * (std::abs(p.data[i]) + std::abs(change));
    }
    EXPECT_TRUE(close(memory_.read(parameters), expected, bound));
    EXPECT_TRUE(close(memory_.read(gradients), g, 0)) << "the gradients changed";
  }
}

TEST_P(Optimizer, AdamFollowsKingmaAndBa) {
  for (const std::int64_t cols : {1, 3, 17, 64, 129, 5000}) {
    SCOPED_TRACE(cols);
    AdamSettings settings{};
    settings.learning_rate = 0.01;
    settings.beta1 = 0.9;
    settings.beta2 = 0.999;
    settings.epsilon = 1e-8;
    const Values start = random_.values(2, cols);
    const Tensor parameters = memory_.tensor(start);
    const Tensor m = memory_.tensor(Values(2, cols));
    const Tensor v = memory_.tensor(Values(2, cols));
    Values p = start, mean(2, cols), variance(2, cols);
    constexpr int steps = 6;
    for (settings.step = 1; settings.step <= steps; ++settings.step) {
      Values g = random_.values(2, cols, -3, 3);
      g(0, 0) = 0;  // A parameter without gradient must not become 0/0.
      const double gradient_scale = 0.5;
      memory_->adam(parameters, memory_.tensor(g), m, v, gradient_scale, settings);
      for (std::size_t i = 0; i < p.data.size(); ++i) {
        const double gradient = gradient_scale * g.data[i];
        mean.data[i] = 0.9 * mean.data[i] + 0.1 * gradient;
        variance.data[i] = 0.999 * variance.data[i] + 0.001 * gradient * gradient;
        const auto t = static_cast<double>(settings.step);
        const double corrected_mean = mean.data[i] / (1 - std::pow(0.9, t));
        const double corrected_variance = variance.data[i] / (1 - std::pow(0.999, t));
        p.data[i] -= 0.01 * corrected_mean / (std::sqrt(corrected_variance) + 1e-8);
      }
    }
    // 1 - beta2 is 0.001 with the error of a number near 1.
    const double from_beta2 = roundoff() / 0.001;
    EXPECT_TRUE(close(memory_.read(m), mean, steps * 16 * roundoff()));
    EXPECT_TRUE(close(memory_.read(v), variance, variance.times(steps * 16 * roundoff() + from_beta2)));
    // Each step moves a parameter by at most about the learning rate.
    EXPECT_TRUE(
        close(memory_.read(parameters), p, steps * (4 * roundoff() + 0.01 * (64 * roundoff() + from_beta2))));
    EXPECT_EQ(memory_.read(parameters)(0, 0), start(0, 0));
  }
}

TEST_P(Optimizer, SumOfSquaresIsAccumulatedInFp64) {
  const Tensor sum = memory_.sums(1);
  for (const std::int64_t cols : {1, 3, 17, 64, 129, 100'003}) {
    const Values x = random_.values(1, cols, -100, 100);
    memory_->sum_of_squares(memory_.tensor(x), sum);
    const double expected = dot(x, x);
    EXPECT_TRUE(close(memory_.read(sum), Values(1, 1, expected), 1e-12 * expected)) << cols;
  }
  // In fp32, 1 is lost when added to 2^26, as each of these would be.
  Values x(1, 4097, 1);
  x(0, 0) = 8192;
  memory_->sum_of_squares(memory_.tensor(x), sum);
  EXPECT_EQ(memory_.read(sum)(0, 0), 67108864.0 + 4096.0);
  memory_->sum_of_squares(memory_.tensor(0, 5), sum);
  EXPECT_EQ(memory_.read(sum)(0, 0), 0.0) << "the sum is set, not added to";
}

TEST_P(Optimizer, ANanGradientShowsInTheNorm) {
  const Tensor sum = memory_.sums(1);
  for (const std::int64_t place : {0, 7, 128}) {
    Values x(1, 129, 1);
    x(0, place) = std::numeric_limits<double>::quiet_NaN();
    memory_->sum_of_squares(memory_.tensor(x), sum);
    EXPECT_TRUE(std::isnan(memory_.read(sum)(0, 0))) << place;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Optimizer, testing::ValuesIn(backends_under_test()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nmt::test
