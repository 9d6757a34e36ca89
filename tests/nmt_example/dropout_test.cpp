// Dropout on every backend. Otherwise a run's numbers would depend on the number of ranks, or the model would
// be regularised at another rate than requested.

#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

class Dropout : public testing::TestWithParam<BackendCase> {
 protected:
  /// The mask as 0 and 1, for samples x positions rows, from dropout over ones.
  Values mask(const std::vector<std::int32_t>& samples, std::int64_t positions, std::int64_t cols,
              const DropoutKey& key, double rate, std::int64_t first_position = 0,
              std::int64_t first_column = 0) {
    const std::int64_t rows = positions * static_cast<std::int64_t>(samples.size());
    const Tensor x = memory_.tensor(Values(rows, cols, 1));
    const Tensor y = memory_.tensor(rows, cols);
    memory_->dropout(x, y, memory_.key(key), rate, memory_.indices(samples), first_position, first_column);
    const Values kept = memory_.read(y).map([](double value) { return value == 0 ? 0.0 : 1.0; });
    return kept;
  }

  std::unique_ptr<Backend> backend_ = make_or_skip(GetParam());
  Memory memory_{*backend_};
  const DropoutKey key_{42, 7, 3};
};

TEST_P(Dropout, MaskDependsOnSamplePositionAndColumnAlone) {
  const std::int64_t positions = 5, cols = 21;
  const std::vector<std::int32_t> samples = {9, 100'000'007, 2, 2'147'483'647, 0};
  const Values whole = mask(samples, positions, cols, key_, 0.3);
  EXPECT_GT(whole.largest(), 0);
  const auto batch = static_cast<std::int64_t>(samples.size());
  for (std::int64_t split = 1; split < batch; ++split) {
    SCOPED_TRACE(split);
    const std::vector<std::int32_t> first(samples.begin(), samples.begin() + split);
    std::vector<std::int32_t> second(samples.begin() + split, samples.end());
    std::reverse(second.begin(), second.end());
    const Values left = mask(first, positions, cols, key_, 0.3);
    const Values right = mask(second, positions, cols, key_, 0.3);
    Values joined(whole.rows, whole.cols);
    for (std::int64_t t = 0; t < positions; ++t)
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t c = 0; c < cols; ++c)
          joined(t * batch + b, c) =
              b < split ? left(t * split + b, c) : right(t * (batch - split) + (batch - 1 - b), c);
    EXPECT_TRUE(close(joined, whole, 0));
  }
  for (std::int64_t position = 0; position < positions; ++position) {
    SCOPED_TRACE(position);
    const Values row = mask(samples, 1, cols, key_, 0.3, position);
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t c = 0; c < cols; ++c) EXPECT_EQ(row(b, c), whole(position * batch + b, c));
  }
  for (const std::int64_t column : {4, 8, 20}) {
    SCOPED_TRACE(column);
    const Values part = mask(samples, positions, cols - column, key_, 0.3, 0, column);
    for (std::int64_t r = 0; r < whole.rows; ++r)
      for (std::int64_t c = column; c < cols; ++c) EXPECT_EQ(part(r, c - column), whole(r, c));
  }
}

TEST_P(Dropout, MaskDiffersBySeedStepSiteSamplePositionAndColumn) {
  const Values base = mask({1, 2}, 2, 128, key_, 0.5);
  const auto differs = [&](const Values& other) {
    double count = 0;
    for (std::size_t i = 0; i < base.data.size(); ++i) count += base.data[i] != other.data[i];
    return count / static_cast<double>(base.data.size());
  };
  // Independent masks at rate 0.5 differ in half of their elements: 5 sigma is 0.11.
  EXPECT_NEAR(differs(mask({1, 2}, 2, 128, {43, 7, 3}, 0.5)), 0.5, 0.11);
  EXPECT_NEAR(differs(mask({1, 2}, 2, 128, {42, 8, 3}, 0.5)), 0.5, 0.11);
  EXPECT_NEAR(differs(mask({1, 2}, 2, 128, {42, 7, 4}, 0.5)), 0.5, 0.11);
  EXPECT_NEAR(differs(mask({3, 4}, 2, 128, key_, 0.5)), 0.5, 0.11);
  EXPECT_NEAR(differs(mask({1, 2}, 2, 128, key_, 0.5, 2)), 0.5, 0.11);
  EXPECT_NEAR(differs(mask({1, 2}, 2, 128, key_, 0.5, 0, 128)), 0.5, 0.11);
}

TEST_P(Dropout, MaskIsTheReferences) {
  const auto reference = make_reference_backend();
  Memory memory(*reference);
  for (const std::int64_t cols : {1, 3, 4, 17, 64, 129}) {
    const std::vector<std::int32_t> samples = {5, 1, 8};
    const Tensor y = memory.tensor(Values(6, cols, 1));
    memory->dropout(y, y, memory.key(key_), 0.2, memory.indices(samples), 3, 12);
    const Values expected = memory.read(y).map([](double value) { return value == 0 ? 0.0 : 1.0; });
    EXPECT_TRUE(close(mask(samples, 2, cols, key_, 0.2, 3, 12), expected, 0)) << cols << " columns";
  }
}

TEST_P(Dropout, DropsAtTheRateInEveryColumn) {
  std::vector<std::int32_t> samples(500);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::int32_t>(i);
  for (const double rate : {0.1, 0.2, 0.5, 0.9}) {
    const Values kept = mask(samples, 4, 50, key_, rate);
    double total = 0;
    for (std::int64_t c = 0; c < kept.cols; ++c) {
      double count = 0;
      for (std::int64_t r = 0; r < kept.rows; ++r) count += kept(r, c);
      total += count;
      const double sigma = std::sqrt(rate * (1 - rate) / static_cast<double>(kept.rows));
      EXPECT_NEAR(count / static_cast<double>(kept.rows), 1 - rate, 5 * sigma) << "column " << c;
    }
    const auto size = static_cast<double>(kept.data.size());
    EXPECT_NEAR(total / size, 1 - rate, 4 * std::sqrt(rate * (1 - rate) / size));
  }
}

TEST_P(Dropout, ScalesWhatItKeepsAndWorksInPlace) {
  Random random(5);
  const Values x_values = random.values(6, 19);
  const Indices samples = memory_.indices({4, 7});
  const Values kept = mask({4, 7}, 3, 19, key_, 0.2);
  Values expected = x_values;
  for (std::size_t i = 0; i < expected.data.size(); ++i) expected.data[i] *= kept.data[i] / 0.8;
  const Tensor x = memory_.tensor(x_values);
  const Tensor y = memory_.tensor(6, 19);
  memory_->dropout(x, y, memory_.key(key_), 0.2, samples, 0, 0);
  EXPECT_TRUE(close(memory_.read(y), expected, expected.abs().times(4 * fp32_roundoff)));
  EXPECT_TRUE(close(memory_.read(x), x_values, 0)) << "the input changed";
  memory_->dropout(x, x, memory_.key(key_), 0.2, samples, 0, 0);
  EXPECT_TRUE(close(memory_.read(x), memory_.read(y), 0));
}

TEST_P(Dropout, RateZeroCopiesAndNoRowsAreFine) {
  Random random(6);
  const Values x_values = random.values(4, 9);
  const Tensor y = memory_.tensor(4, 9);
  memory_->dropout(memory_.tensor(x_values), y, memory_.key(key_), 0, memory_.indices({4, 7}), 0, 0);
  EXPECT_TRUE(close(memory_.read(y), x_values, 0));
  const Tensor none = memory_.tensor(0, 9);
  memory_->dropout(none, none, memory_.key(key_), 0.5, memory_.indices({}), 0, 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, Dropout, testing::ValuesIn(backends_under_test()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nmt::test
