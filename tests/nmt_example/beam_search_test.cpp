// Beam search over a scorer with given distributions, so that every score can be computed by hand.

#include "nmt_example/inference/beam_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "nmt_example/data/vocabulary.hpp"

namespace nmt {
namespace {

constexpr std::int32_t bos = Vocabulary::bos_id;
constexpr std::int32_t eos = Vocabulary::eos_id;
constexpr std::int32_t a = 3, b = 4, c = 5, d = 6;
constexpr std::int64_t vocabulary = 7;

using Words = std::vector<std::int32_t>;

/// The probabilities of the next word; missing words have probability 0.
using Distribution = std::map<std::int32_t, double>;
using DistributionOf = std::function<Distribution(std::size_t sentence, const Words& words)>;
/// The attention of the step after some words.
using AttentionOf = std::function<std::vector<float>(std::size_t sentence, const Words& words)>;

/// A scorer that reconstructs each row's words only from the parents and words it is given, and checks that
/// they are consistent and that no row is one too many.
class WrittenScorer final : public NextWordScorer {
 public:
  WrittenScorer(std::size_t sentences, int width, DistributionOf distribution, AttentionOf attention = {},
                std::int64_t size = vocabulary)
      : sentences_(sentences),
        width_(static_cast<std::size_t>(width)),
        size_(static_cast<std::size_t>(size)),
        distribution_(std::move(distribution)),
        attention_(std::move(attention)),
        rows_(sentences_) {
    for (std::size_t s = 0; s < sentences_; ++s) rows_[s].sentence = s;
  }

  void step(std::span<const std::int32_t> parents, std::span<const std::int32_t> words) override {
    ASSERT_FALSE(parents.empty());
    ASSERT_EQ(words.size(), parents.size());
    std::vector<Row> next;
    for (std::size_t r = 0; r < parents.size(); ++r) {
      next.push_back(rows_.at(static_cast<std::size_t>(parents[r])));
      ASSERT_TRUE(r == 0 || next[r - 1].sentence <= next[r].sentence);
      ASSERT_NE(words[r], eos) << "row " << r << " has ended";
      ASSERT_EQ(words[r] == bos, steps_ == 0);
      if (steps_ > 0) next[r].words.push_back(words[r]);
    }
    for (std::size_t s = 0; s < sentences_; ++s)
      ASSERT_LE(std::ranges::count(next, s, &Row::sentence), static_cast<std::ptrdiff_t>(width_));
    rows_ = std::move(next);
    row_count_ += rows_.size();
    ++steps_;
    fill();
  }
  [[nodiscard]] std::span<const double> draw_words(std::span<const double>, double) override { return {}; }
  [[nodiscard]] std::span<const double> best_words() override {
    best_words_.clear();
    std::vector<std::size_t> words(size_);
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const auto row = std::span(log_probabilities_).subspan(r * size_, size_);
      std::iota(words.begin(), words.end(), std::size_t{0});
      std::ranges::stable_sort(words, std::greater(), [&](std::size_t word) { return row[word]; });
      const auto best = std::span(words).first(std::min(width_ + 2, size_));
      for (const std::size_t word : best) best_words_.push_back(static_cast<double>(word));
      for (const std::size_t word : best) best_words_.push_back(static_cast<double>(row[word]));
      best_words_.push_back(static_cast<double>(row[eos]));
    }
    return best_words_;
  }
  [[nodiscard]] std::span<const float> attention_weights() override { return weights_; }
  [[nodiscard]] int steps() const { return steps_; }
  /// Of all steps.
  [[nodiscard]] std::size_t rows() const { return row_count_; }

 private:
  struct Row {
    std::size_t sentence = 0;
    Words words;
  };

  void fill() {
    log_probabilities_.assign(rows_.size() * size_, -std::numeric_limits<float>::infinity());
    weights_.clear();
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const auto& [sentence, words] = rows_[r];
      for (const auto& [word, probability] : distribution_(sentence, words)) {
        log_probabilities_[r * size_ + static_cast<std::size_t>(word)] =
            static_cast<float>(std::log(probability));
      }
      if (!attention_) continue;
      const std::vector<float> weights = attention_(sentence, words);
      weights_.insert(weights_.end(), weights.begin(), weights.end());
    }
  }

  std::size_t sentences_, width_, size_;
  DistributionOf distribution_;
  AttentionOf attention_;
  std::vector<Row> rows_;
  std::vector<float> log_probabilities_, weights_;
  std::vector<double> best_words_;
  int steps_ = 0;
  std::size_t row_count_ = 0;
};

/// Distributions by the preceding words; after other words the sentence ends.
DistributionOf table(std::map<Words, Distribution> entries) {
  return [entries = std::move(entries)](std::size_t, const Words& words) {
    const auto found = entries.find(words);
    return found == entries.end() ? Distribution{{eos, 1.0}} : found->second;
  };
}

Translation search(const DistributionOf& distribution, const SearchSettings& settings,
                   const AttentionOf& attention = {}, std::int32_t source_length = 1) {
  WrittenScorer scorer(1, settings.beam_width, distribution, attention);
  return beam_search(scorer, std::span(&source_length, 1), settings).at(0);
}

/// An arbitrary but repeatable distribution.
Distribution some_distribution(std::size_t sentence, const Words& words) {
  std::uint64_t state = 88172645463325252u + sentence * 7919;
  for (const std::int32_t word : words)
    state = state * 6364136223846793005u + static_cast<std::uint64_t>(word);
  Distribution result;
  double sum = 0;
  for (const std::int32_t word : {0, eos, a, b}) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    sum += result[word] = 0.02 + static_cast<double>(state >> 40) / 0x1p24;
  }
  for (auto& [word, probability] : result) probability /= sum;
  return result;
}

std::vector<float> some_attention(std::size_t sentence, const Words& words) {
  const auto x =
      static_cast<float>((sentence * 3 + words.size() * 5 + (words.empty() ? 0u : words.back())) % 7);
  return {x / 14, 0.5f, 0.5f - x / 14};
}

// Greedy output would not be the model's most probable words.
TEST(BeamSearch, WidthOneTakesTheMostProbableWordEachTime) {
  const auto t = table({{{}, {{a, 0.6}, {b, 0.3}, {eos, 0.1}}},
                        {{a}, {{c, 0.5}, {b, 0.3}, {eos, 0.2}}},
                        {{a, c}, {{eos, 0.6}, {a, 0.4}}}});
  const Translation found = search(t, {1, 0, 0, 10});
  EXPECT_EQ(found.words, (Words{a, c}));
  EXPECT_NEAR(found.log_probability, std::log(0.6 * 0.5 * 0.6), 1e-6);
  EXPECT_EQ(found.score, found.log_probability);
}

// A beam would cost time without better results.
TEST(BeamSearch, WiderBeamFindsWhatGreedyMisses) {
  const auto t = table(
      {{{}, {{a, 0.6}, {b, 0.4}}}, {{a}, {{c, 0.4}, {d, 0.35}, {eos, 0.25}}}, {{b}, {{eos, 0.9}, {c, 0.1}}}});
  EXPECT_EQ(search(t, {1, 0, 0, 10}).words, (Words{a, c}));
  const Translation found = search(t, {2, 0, 0, 10});
  EXPECT_EQ(found.words, Words{b});
  EXPECT_NEAR(found.log_probability, std::log(0.36), 1e-6);
}

// Translations would be too short or too long for the requested weight.
TEST(BeamSearch, LengthPenaltyDividesByFivePlusLengthOverSix) {
  const auto t = table({{{}, {{a, 0.3}, {b, 0.21}}}, {{b}, {{c, 1.0}}}, {{b, c}, {{d, 1.0}}}});
  EXPECT_EQ(search(t, {3, 0, 0, 10}).words, Words{a});
  const Translation found = search(t, {3, 1.0, 0, 10});
  EXPECT_EQ(found.words, (Words{b, c, d}));
  EXPECT_NEAR(found.score, std::log(0.21) / (8.0 / 6.0), 1e-6);  // </s> does not count as a word
  EXPECT_NEAR(found.log_probability, std::log(0.21), 1e-6);
  EXPECT_NEAR(search(t, {3, 0.5, 0, 10}).score, std::log(0.3), 1e-6);
  EXPECT_NEAR(search(t, {3, 2.0, 0, 10}).score, std::log(0.21) / std::pow(8.0 / 6.0, 2), 1e-6);
}

// Words left untranslated would not count against a translation, or padding would.
TEST(BeamSearch, CoveragePenaltyCountsSourceWordsWithoutAttention) {
  const auto t = table({{{}, {{a, 0.5}, {b, 0.4}}}});
  // Three positions, of which the sentence has two. The step that produces </s> attends too.
  const auto attention = [](std::size_t, const Words& words) -> std::vector<float> {
    if (words.empty()) return {0.75f, 0.25f, 0.0f};
    if (words[0] == a) return {0.75f, 0.25f, 0.0f};
    return {0.25f, 0.75f, 0.0f};
  };
  EXPECT_EQ(search(t, {2, 0, 0, 10}, attention, 2).words, Words{a});
  const Translation found = search(t, {2, 0, 0.5, 10}, attention, 2);
  EXPECT_EQ(found.words, Words{b});
  EXPECT_NEAR(found.score, std::log(0.4), 1e-6);  // each word has attention 1.0, so there is no penalty
  // a: the words received 1.5 and 0.5, of which 1 and 0.5 count.
  const Translation kept = search(t, {2, 0, 0.25, 10}, attention, 2);
  EXPECT_EQ(kept.words, Words{a});
  EXPECT_NEAR(kept.score, std::log(0.5) + 0.25 * std::log(0.5), 1e-6);
}

// The score of an ended hypothesis would change while others continue.
TEST(BeamSearch, EndedHypothesisKeepsItsScoreWhileOthersGoOn) {
  const auto t = table({{{}, {{a, 0.5}, {b, 0.5}}},
                        {{a}, {{eos, 0.8}, {c, 0.2}}},
                        {{b}, {{c, 0.9}, {d, 0.1}}},
                        {{b, c}, {{d, 0.9}, {a, 0.1}}},
                        {{b, c, d}, {{a, 0.9}, {c, 0.1}}}});
  const auto attention = [](std::size_t, const Words& words) -> std::vector<float> {
    return words.empty() ? std::vector<float>{0.5f} : std::vector<float>{0.25f};
  };
  const Translation found = search(t, {2, 0, 0.1, 10}, attention);
  EXPECT_EQ(found.words, Words{a});
  EXPECT_NEAR(found.score, std::log(0.5 * 0.8) + 0.1 * std::log(0.75), 1e-6);
}

// A hypothesis that ends early would win over better ones that take longer.
TEST(BeamSearch, EndedHypothesisIsPushedOutByBetterOnes) {
  const auto t = table({{{}, {{eos, 0.45}, {a, 0.3}, {b, 0.25}}},
                        {{a}, {{c, 1.0}}},
                        {{b}, {{c, 1.0}}},
                        {{a, c}, {{d, 1.0}}},
                        {{b, c}, {{d, 1.0}}}});
  // Without words the factor is (5/6)^4 = 0.48, which doubles the penalty of log p.
  const Translation found = search(t, {3, 4.0, 0, 10});
  EXPECT_EQ(found.words, (Words{a, c, d}));
  EXPECT_NEAR(found.score, std::log(0.3) / std::pow(8.0 / 6.0, 4), 1e-6);
  EXPECT_EQ(search(t, {3, 0, 0, 10}).words, Words{});
}

// A model that never ends would translate forever, or lose its output.
TEST(BeamSearch, MaxStepsCutsOffWhatDoesNotEnd) {
  const auto never = [](std::size_t, const Words&) { return Distribution{{a, 0.6}, {b, 0.4}}; };
  for (const int width : {1, 3}) {
    WrittenScorer scorer(1, width, never);
    const std::int32_t length = 1;
    const auto found = beam_search(scorer, std::span(&length, 1), {width, 0, 0, 4});
    EXPECT_EQ(found.at(0).words, (Words{a, a, a, a}));
    EXPECT_EQ(scorer.steps(), 4);
  }
}

// A sentence's translation would depend on the other sentences in its batch.
TEST(BeamSearch, WithoutMaxStepsEachSentenceHasALimitOfItsOwn) {
  const auto never = [](std::size_t, const Words&) { return Distribution{{a, 0.6}, {b, 0.4}}; };
  const std::vector<std::int32_t> lengths{1, 3, 2};
  for (const int width : {1, 3}) {
    WrittenScorer scorer(3, width, never);
    const auto found = beam_search(scorer, lengths, {width, 0, 0, 0});
    for (std::size_t s = 0; s < 3; ++s) {
      EXPECT_EQ(found.at(s).words, Words(static_cast<std::size_t>(2 * lengths[s] + 10), a));
      EXPECT_NEAR(found.at(s).log_probability, (2 * lengths[s] + 10) * std::log(0.6), 1e-5);
    }
    EXPECT_EQ(scorer.steps(), 16);
  }
}

// A truncated sentence would be returned although a complete one was found.
TEST(BeamSearch, WhatEndedComesBeforeWhatWasCutOff) {
  const auto t = [](std::size_t, const Words& words) {
    return words.empty() ? Distribution{{a, 0.9}, {b, 0.1}}
                         : (words[0] == b ? Distribution{{eos, 1.0}} : Distribution{{a, 1.0}});
  };
  EXPECT_EQ(search(t, {2, 0, 0, 5}).words, Words{b});
}

// Time would be wasted after the last hypothesis has ended.
TEST(BeamSearch, StopsWhenAllHaveEnded) {
  const auto t = table({{{}, {{a, 0.7}, {b, 0.3}}}});
  WrittenScorer scorer(1, 2, t);
  const std::int32_t length = 1;
  beam_search(scorer, std::span(&length, 1), {2, 0, 0, 50});
  EXPECT_EQ(scorer.steps(), 2);
}

// Time would be wasted on hypotheses and sentences that need no further step.
TEST(BeamSearch, WhatHasEndedHasNoRow) {
  // Sentence s ends after s words and, with the lower of its two first words, one word earlier.
  const auto t = [](std::size_t s, const Words& words) {
    if (words.empty() && s > 0) return Distribution{{a, 0.5}, {b, 0.5}};
    const bool ends = words.size() + (!words.empty() && words[0] == a ? 1 : 0) >= s;
    return ends ? Distribution{{eos, 1.0}} : Distribution{{c, 1.0}};
  };
  WrittenScorer scorer(4, 2, t);
  const std::vector<std::int32_t> lengths{1, 1, 1, 1};
  const auto found = beam_search(scorer, lengths, {2, 0, 0, 10, 2});
  EXPECT_EQ(found.at(6).words, (Words{a, c}));
  EXPECT_EQ(found.at(7).words, (Words{b, c, c}));
  EXPECT_EQ(scorer.steps(), 4);
  // The first step of each sentence has one row; those of sentences 1, 2 and 3 then have these.
  EXPECT_EQ(scorer.rows(), 4U + 2U + (2U + 1U) + (2U + 2U + 1U));
}

// Results would differ between machines if words are equally probable.
TEST(BeamSearch, TiesGoToTheLowerWordAndRow) {
  const auto even = [](std::size_t, const Words& words) {
    return words.size() < 2 ? Distribution{{a, 0.25}, {b, 0.25}, {c, 0.25}, {d, 0.25}}
                            : Distribution{{eos, 1.0}};
  };
  for (const int width : {1, 2, 3, 5}) {
    EXPECT_EQ(search(even, {width, 0, 0, 10}).words, (Words{a, a})) << "width " << width;
  }
}

// The output would contain <s>, or padding rows of a beam wider than the vocabulary would count as
// hypotheses.
TEST(BeamSearch, NeverGivesStartOfSentence) {
  const auto t = [](std::size_t, const Words& words) {
    return words.empty() ? Distribution{{bos, 0.9}, {a, 0.05}, {eos, 0.05}} : Distribution{{eos, 1.0}};
  };
  EXPECT_EQ(search(t, {1, 0, 0, 10}).words, Words{});
  const Translation found = search(t, {20, 2.0, 0, 10});
  EXPECT_EQ(found.words, Words{a});
  EXPECT_NEAR(found.score, std::log(0.05), 1e-6);
}

// A batch's sentences would influence each other.
TEST(BeamSearch, EachSentenceIsSearchedAsIfAlone) {
  constexpr std::size_t sentences = 7;
  const std::vector<std::int32_t> lengths{3, 2, 3, 1, 2, 3, 2};
  for (const int width : {1, 2, 4}) {
    const SearchSettings settings{width, 0.8, 0.3, 0};
    WrittenScorer together(sentences, width, some_distribution, some_attention);
    const auto found = beam_search(together, lengths, settings);
    ASSERT_EQ(found.size(), sentences);
    for (std::size_t s = 0; s < sentences; ++s) {
      WrittenScorer alone(
          1, width, [s](std::size_t, const Words& words) { return some_distribution(s, words); },
          [s](std::size_t, const Words& words) { return some_attention(s, words); });
      const auto expected = beam_search(alone, std::span(&lengths[s], 1), settings).at(0);
      EXPECT_EQ(found[s].words, expected.words) << "sentence " << s << ", width " << width;
      EXPECT_EQ(found[s].score, expected.score);
    }
  }
}

struct Best {
  Words words;
  double score = -std::numeric_limits<double>::infinity();
};

/// Scores every sequence of up to `most` words in plain loops.
void search_all(std::size_t sentence, Words& words, double log_probability, std::vector<double> received,
                std::size_t source_length, const SearchSettings& settings, std::size_t most, Best& best) {
  const Distribution next = some_distribution(sentence, words);
  const std::vector<float> attention = some_attention(sentence, words);
  for (std::size_t i = 0; i < received.size(); ++i) received[i] += static_cast<double>(attention[i]);
  double score = (log_probability + std::log(next.at(eos))) /
                 std::pow((5.0 + static_cast<double>(words.size())) / 6.0, settings.length_penalty);
  for (std::size_t i = 0; i < source_length; ++i) {
    score += settings.coverage_penalty * std::log(std::clamp(received[i], 1e-10, 1.0));
  }
  if (score > best.score) best = {words, score};
  if (words.size() == most) return;
  for (const std::int32_t word : {0, a, b}) {
    words.push_back(word);
    search_all(sentence, words, log_probability + std::log(next.at(word)), received, source_length, settings,
               most, best);
    words.pop_back();
  }
}

// The search would miss the best translation even with a beam that keeps everything.
TEST(BeamSearch, WideBeamEqualsExhaustiveSearch) {
  constexpr int everything = 200;  // there are 3^0 + ... + 3^4 = 121 sequences
  for (const double length_penalty : {0.0, 0.6, 1.5}) {
    for (const double coverage_penalty : {0.0, 0.4}) {
      const SearchSettings settings{everything, length_penalty, coverage_penalty, 5};
      for (std::size_t s = 0; s < 10; ++s) {
        const std::int32_t length = 3;
        WrittenScorer scorer(
            1, everything, [s](std::size_t, const Words& words) { return some_distribution(s, words); },
            [s](std::size_t, const Words& words) { return some_attention(s, words); });
        const auto found = beam_search(scorer, std::span(&length, 1), settings).at(0);
        Best best;
        Words words;
        search_all(s, words, 0.0, {0, 0, 0}, 3, settings, 4, best);
        EXPECT_EQ(found.words, best.words) << "sentence " << s;
        EXPECT_NEAR(found.score, best.score, 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace nmt
