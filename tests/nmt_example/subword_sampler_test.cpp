// Random splits of words, and words that are left out, in training. Otherwise the noise would have another
// strength than was asked for, change the text, or depend on the batch.

#include "nmt_example/data/subword_sampler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "nmt_example/data/encoding.hpp"
#include "nmt_example/data/number_corpus.hpp"
#include "nmt_example/data/sentence_noise.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace nmt {
namespace {

constexpr PhiloxKey key = {3, 4};
using Ids = std::vector<std::int32_t>;

ParallelText corpus() { return number_corpus(CorpusSplit::train, 500, 1); }

Vocabulary trained(SubwordType type) { return Vocabulary::train(corpus().target, 300, {.type = type}); }

Ids split_of(SubwordSampler& sampler, const Ids& ids, std::uint32_t sample = 0) {
  Ids result;
  sampler.split(ids, {key, sample}, result);
  return result;
}

class Sampler : public testing::TestWithParam<SubwordType> {
 protected:
  Vocabulary vocabulary_ = trained(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Types, Sampler, testing::Values(SubwordType::unigram, SubwordType::bpe),
                         [](const auto& test) -> std::string {
                           return test.param == SubwordType::unigram ? "unigram" : "bpe";
                         });

// The model would be trained on other sentences than those of the text.
TEST_P(Sampler, KeepsTheText) {
  SubwordSampler sampler(vocabulary_, 0.3);
  int changed = 0;
  const auto lines = corpus().target;
  for (std::uint32_t i = 0; i < lines.size(); ++i) {
    const Ids ids = vocabulary_.encode(lines[i]);
    const Ids split = split_of(sampler, ids, i);
    EXPECT_EQ(vocabulary_.decode(split), lines[i]);
    EXPECT_EQ(split_of(sampler, ids, i), split) << "the same key and sample give another split";
    changed += split != ids ? 1 : 0;
  }
  EXPECT_GT(changed, static_cast<int>(lines.size()) / 4);
}

// Without noise, words would have other splits in training than in translating.
TEST_P(Sampler, TheBestSplitIsSentencePieces) {
  const double without_noise = GetParam() == SubwordType::unigram ? 1000 : 0;
  SubwordSampler sampler(vocabulary_, without_noise);
  const std::vector<double> scores = vocabulary_.subword_pieces().value().scores;
  const auto score_of = [&](const Ids& ids) {
    double sum = 0;
    for (const std::int32_t id : ids) sum += scores[static_cast<std::size_t>(id)];
    return sum;
  };
  for (const std::string& line : corpus().target) {
    const Ids ids = vocabulary_.encode(line);
    const Ids split = split_of(sampler, ids);
    if (GetParam() == SubwordType::bpe) {
      EXPECT_EQ(split, ids) << line;
    } else {
      EXPECT_NEAR(score_of(split), score_of(ids), 1e-3) << line;  // there may be several best ones
    }
  }
}

// Words with unknown characters would lose them, or be split into pieces of another text.
TEST_P(Sampler, UnknownTextStaysAsItIs) {
  SubwordSampler sampler(vocabulary_, GetParam() == SubwordType::unigram ? 0.01 : 1);
  const Ids ids = vocabulary_.encode("eins\u4e2d zwei");
  ASSERT_EQ(std::count(ids.begin(), ids.end(), Vocabulary::unk_id), 1);
  const auto unknown = std::find(ids.begin(), ids.end(), Vocabulary::unk_id);
  int changed = 0;
  for (std::uint32_t sample = 0; sample < 20; ++sample) {
    const Ids split = split_of(sampler, ids, sample);
    changed += split != ids ? 1 : 0;
    EXPECT_TRUE(std::equal(ids.begin(), unknown + 1, split.begin()));
  }
  EXPECT_GT(changed, 0);
}

double sum_of(const std::map<Ids, double>& weights) {
  double sum = 0;
  for (const auto& [split, weight] : weights) sum += weight;
  return sum;
}

/// All splits of a text into pieces, with the weight exp(strength * sum of scores).
void add_splits(const Vocabulary& vocabulary, const SubwordPieces& pieces, double strength,
                const std::string& text, const Ids& before, double score, std::map<Ids, double>& splits) {
  if (text.empty()) {
    splits[before] = std::exp(strength * score);
    return;
  }
  for (std::size_t id = 3; id < vocabulary.size(); ++id) {
    const std::string piece = vocabulary.piece(static_cast<std::int32_t>(id));
    if (!text.starts_with(piece)) continue;
    Ids split = before;
    split.push_back(static_cast<std::int32_t>(id));
    add_splits(vocabulary, pieces, strength, text.substr(piece.size()), split, score + pieces.scores[id],
               splits);
  }
}

// Words would be split more, or less, than the flag says.
TEST(SubwordSampling, UnigramSplitsHaveTheirProbabilities) {
  const Vocabulary vocabulary = trained(SubwordType::unigram);
  const SubwordPieces pieces = vocabulary.subword_pieces().value();
  const Ids word = vocabulary.encode("siebzehn");
  for (const double strength : {0.2, 1.0}) {
    SCOPED_TRACE(strength);
    std::map<Ids, double> expected;
    add_splits(vocabulary, pieces, strength, "\u2581siebzehn", {}, 0, expected);
    ASSERT_GT(expected.size(), 6U);
    const double sum = sum_of(expected);
    SubwordSampler sampler(vocabulary, strength);
    constexpr int draws = 20000;
    std::map<Ids, int> found;
    for (std::uint32_t sample = 0; sample < draws; ++sample) ++found[split_of(sampler, word, sample)];
    for (const auto& [split, weight] : expected) {
      const double p = weight / sum;
      EXPECT_NEAR(found[split] / double{draws}, p, 5 * std::sqrt(p * (1 - p) / draws) + 1e-4);
    }
    for (const auto& [split, count] : found) EXPECT_TRUE(expected.contains(split)) << "no split of the word";
  }
}

TEST(SubwordSampling, BpeWithoutMergesIsCharacters) {
  const Vocabulary vocabulary = trained(SubwordType::bpe);
  SubwordSampler sampler(vocabulary, 1);
  EXPECT_EQ(split_of(sampler, vocabulary.encode("drei")).size(), 5U);  // with the word's mark
}

TEST(SubwordSampling, IsForSentencePieceModels) {
  const ddl::test::TemporaryDirectory directory;
  const auto words = Vocabulary::from_word_list(directory.write("v", "a\nb\n"));
  ddl::test::expect_error(ddl::ErrorCode::unsupported, {"--subword_sampling", "list of words"},
                          [&] { SubwordSampler(words, 0.5); });
  ddl::test::expect_error(ddl::ErrorCode::invalid_argument, {"--subword_sampling=1.5", "at most 1"},
                          [&] { SubwordSampler(trained(SubwordType::bpe), 1.5); });
}

class Noise : public testing::Test {
 protected:
  ParallelText text_ = corpus();
  Vocabulary source_ = Vocabulary::train(text_.source, 150);
  Vocabulary target_ = Vocabulary::train(text_.target, 150);
  Dataset dataset_ = encode(text_, source_, target_, 50, 50);
  Batch batch_;
};

// Words would be left out at another rate, or the model would have to predict unknown words.
TEST_F(Noise, WordsThatAreReadAreDroppedAtTheRate) {
  std::vector<std::size_t> samples(dataset_.size());
  std::iota(samples.begin(), samples.end(), std::size_t{0});
  Batch plain;
  fill_batch(dataset_, samples, plain);
  SentenceNoise noise(source_, target_, {.word_dropout = 0.2, .seed = 5});
  fill_batch(dataset_, samples, batch_, &noise, 9);
  EXPECT_EQ(batch_.target_out, plain.target_out);
  EXPECT_EQ(batch_.source_lengths, plain.source_lengths);
  const auto rate = [&](const Ids& found, const Ids& before, const Ids& lengths) {
    double dropped = 0, words = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const bool is_word = static_cast<std::int32_t>(i / batch_.size()) < lengths[i % batch_.size()];
      if (is_word) ++words;
      if (found[i] == before[i]) continue;
      EXPECT_TRUE(is_word && found[i] == Vocabulary::unk_id && before[i] != Vocabulary::bos_id);
      ++dropped;
    }
    return dropped / words;
  };
  EXPECT_NEAR(rate(batch_.source, plain.source, plain.source_lengths), 0.2, 0.02);
  const double mean_length = static_cast<double>(plain.target_tokens) / static_cast<double>(samples.size());
  EXPECT_NEAR(rate(batch_.target_in, plain.target_in, plain.target_lengths), 0.2 * (1 - 1 / mean_length),
              0.02);
}

// Training would depend on how sentences are spread over ranks.
TEST_F(Noise, OfASentenceDoesNotDependOnTheBatch) {
  SentenceNoise noise(source_, target_, {0.2, 0.3, 5}), other(source_, target_, {0.2, 0.3, 5});
  fill_batch(dataset_, std::vector<std::size_t>{1, 2, 3, 4}, batch_, &noise, 9);
  for (const std::size_t b : {0, 1, 2, 3}) {
    Batch alone;
    fill_batch(dataset_, std::vector<std::size_t>{b + 1}, alone, &other, 9);
    ASSERT_EQ(alone.source_lengths[0], batch_.source_lengths[b]);
    ASSERT_EQ(alone.target_lengths[0], batch_.target_lengths[b]);
    for (std::size_t t = 0; t < alone.source.size(); ++t)
      EXPECT_EQ(alone.source[t], batch_.source[t * batch_.size() + b]);
    for (std::size_t t = 0; t < alone.target_in.size(); ++t)
      EXPECT_EQ(alone.target_in[t], batch_.target_in[t * batch_.size() + b]);
  }
  Batch later;
  fill_batch(dataset_, std::vector<std::size_t>{1, 2, 3, 4}, later, &noise, 10);
  EXPECT_NE(later.source, batch_.source) << "each step draws anew";
}

// A batch would be larger than the memory that was planned.
TEST_F(Noise, NoSentenceIsLongerThanTheLongest) {
  SentenceNoise noise(source_, target_, {.subword_sampling = 0.01});
  for (std::size_t sample = 0; sample < dataset_.size(); ++sample) {
    fill_batch(dataset_, std::vector<std::size_t>{sample}, batch_, &noise, 1);
    EXPECT_LE(batch_.source_steps, dataset_.longest_source());
    EXPECT_LE(batch_.target_steps, dataset_.longest_target() + 1);
  }
}

}  // namespace
}  // namespace nmt
