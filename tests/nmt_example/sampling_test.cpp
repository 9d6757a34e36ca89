// Sampling over a scorer with given distributions.

#include "nmt_example/inference/sampling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/data/vocabulary.hpp"

namespace nmt {
namespace {

constexpr std::int32_t bos = Vocabulary::bos_id;
constexpr std::int32_t eos = Vocabulary::eos_id;
constexpr std::int32_t a = 3, b = 4;
constexpr std::int64_t vocabulary = 5;

using Words = std::vector<std::int32_t>;
using Distribution = std::map<std::int32_t, double>;
using DistributionOf = std::function<Distribution(const Words& words)>;

/// Gives every row the distribution of the words that it was given, and checks that none goes on after its
/// end.
class WrittenScorer final : public NextWordScorer {
 public:
  WrittenScorer(std::size_t sentences, DistributionOf distribution)
      : rows_(sentences), distribution_(std::move(distribution)) {}

  void step(std::span<const std::int32_t> parents, std::span<const std::int32_t> words) override {
    std::vector<Words> next;
    for (const std::int32_t parent : parents) next.push_back(rows_.at(static_cast<std::size_t>(parent)));
    rows_ = std::move(next);
    log_probabilities_.assign(rows_.size() * vocabulary, -std::numeric_limits<double>::infinity());
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      ASSERT_NE(words[r], eos);
      if (words[r] == bos) {
        ASSERT_TRUE(rows_[r].empty());
      } else {
        rows_[r].push_back(words[r]);
      }
      for (const auto& [word, probability] : distribution_(rows_[r])) {
        log_probabilities_[r * vocabulary + static_cast<std::size_t>(word)] = std::log(probability);
      }
    }
  }
  [[nodiscard]] std::span<const double> best_words() override { return {}; }
  [[nodiscard]] std::span<const double> draw_words(std::span<const double> numbers,
                                                   double temperature) override {
    EXPECT_EQ(numbers.size(), rows_.size());
    const auto rows = static_cast<std::int64_t>(rows_.size());
    drawn_.resize(2 * rows_.size());
    backend_->draw_columns({log_probabilities_.data(), rows, vocabulary, vocabulary, ddl::DataType::f64},
                           numbers.data(), temperature, bos, {drawn_.data(), rows, 2, 2, ddl::DataType::f64});
    return drawn_;
  }
  [[nodiscard]] std::span<const float> attention_weights() override { return {}; }

 private:
  std::vector<Words> rows_;
  DistributionOf distribution_;
  std::vector<double> log_probabilities_, drawn_;
  std::unique_ptr<Backend> backend_ = make_reference_backend();
};

std::vector<Translation> sample_of(const DistributionOf& distribution,
                                   const std::vector<std::uint64_t>& numbers,
                                   const SamplingSettings& settings) {
  WrittenScorer scorer(numbers.size(), distribution);
  const std::vector<std::int32_t> lengths(numbers.size(), 1);
  return sample(scorer, lengths, numbers, settings);
}

Distribution one_word(const Words& words) {
  return words.empty() ? Distribution{{a, 0.5}, {b, 0.3}, {eos, 0.1}, {bos, 0.1}} : Distribution{{eos, 1.0}};
}

// Samples would not be the model's, or the temperature would do something else.
TEST(Sampling, DrawsWordsWithTheirTemperedProbabilities) {
  constexpr int samples = 20000;
  for (const double temperature : {0.5, 1.0, 2.0}) {
    std::map<Words, double> found;
    for (const Translation& t : sample_of(one_word, {7}, {temperature, samples, 3, 0})) found[t.words] += 1;
    const auto weight = [&](double probability) { return std::pow(probability, 1 / temperature); };
    const double sum = weight(0.5) + weight(0.3) + weight(0.1);  // <s> is left out
    for (const auto& [words, probability] : std::map<Words, double>{{{a}, 0.5}, {{b}, 0.3}, {{}, 0.1}}) {
      const double expected = weight(probability) / sum;
      const double deviation = std::sqrt(expected * (1 - expected) / samples);
      EXPECT_NEAR(found[words] / samples, expected, 5 * deviation) << "temperature " << temperature;
    }
    EXPECT_EQ(found.size(), 3U);
  }
}

// A small temperature would overflow, or differ from greedy search.
TEST(Sampling, AColdSampleIsTheMostProbableWord) {
  for (const Translation& t : sample_of(one_word, {1, 2, 3}, {1e-6, 50, 1, 0})) EXPECT_EQ(t.words, Words{a});
}

// Samples would depend on the batch that a sentence is in, and so on the number of ranks.
TEST(Sampling, DependOnSeedSentenceSampleAndStepAlone) {
  const auto random = [](const Words& words) {
    return words.size() < 6 ? Distribution{{a, 0.5}, {b, 0.5}} : Distribution{{eos, 1.0}};
  };
  const SamplingSettings settings{1.0, 2, 5, 0};
  const auto together = sample_of(random, {11, 12, 13}, settings);
  ASSERT_EQ(together.size(), 6U);
  for (std::size_t s = 0; s < 3; ++s) {
    const auto alone = sample_of(random, {11 + s}, settings);
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(alone[k].words, together[2 * s + k].words);
      EXPECT_EQ(alone[k].words.size(), 6U);
      EXPECT_NEAR(alone[k].log_probability, 6 * std::log(0.5), 1e-6);
    }
  }
  std::map<Words, int> different;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (const Translation& t : sample_of(random, {11, 12, 13, std::uint64_t{1} << 40}, {1.0, 4, seed, 0})) {
      ++different[t.words];
    }
  }
  EXPECT_GT(different.size(), 30U)
      << "64 samples of 64 sentences have about 41 different ones, if independent";
}

TEST(Sampling, EndsAtTheLimit) {
  const auto never = [](const Words&) { return Distribution{{a, 1.0}}; };
  EXPECT_EQ(sample_of(never, {1}, {1.0, 1, 1, 4}).at(0).words.size(), 4U);
  EXPECT_EQ(sample_of(never, {1}, {1.0, 1, 1, 0}).at(0).words.size(), 12U);
}

}  // namespace
}  // namespace nmt
