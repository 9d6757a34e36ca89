// Alignment of words, over a scorer whose attention is given.

#include "nmt_example/inference/alignment.hpp"

#include <gtest/gtest.h>

#include <map>

#include "nmt_example/data/vocabulary.hpp"

namespace nmt {
namespace {

using Ids = std::vector<std::int32_t>;

/// Its attention depends on the sentence and the words that a row has read after <s>.
class GivenAttention final : public NextWordScorer {
 public:
  using Weights = std::map<std::pair<std::size_t, Ids>, std::vector<float>>;
  GivenAttention(std::size_t sentences, Weights weights) : given_(std::move(weights)) {
    for (std::size_t s = 0; s < sentences; ++s) rows_.push_back({s, {}});
  }

  void step(std::span<const std::int32_t> parents, std::span<const std::int32_t> words) override {
    std::vector<std::pair<std::size_t, Ids>> next;
    weights_.clear();
    for (std::size_t r = 0; r < parents.size(); ++r) {
      next.push_back(rows_.at(static_cast<std::size_t>(parents[r])));
      if (words[r] != Vocabulary::bos_id) next.back().second.push_back(words[r]);
      const std::vector<float>& weights = given_.at(next.back());
      weights_.insert(weights_.end(), weights.begin(), weights.end());
    }
    rows_ = std::move(next);
  }
  std::span<const double> best_words() override { return {}; }
  std::span<const double> draw_words(std::span<const double>, double) override { return {}; }
  std::span<const float> attention_weights() override { return weights_; }

 private:
  Weights given_;
  std::vector<std::pair<std::size_t, Ids>> rows_;
  std::vector<float> weights_;
};

// Words would be aligned by another translation's attention, that of another step, or a padded source's; the
// pieces of a word would be counted apart; or equal words would be chosen at random.
TEST(Alignment, TakesTheWordWithTheMostAttentionOfAllPieces) {
  const Ids first{3, 4, 5}, second{6}, other{3, 7};
  GivenAttention scorer(2,
                        {
                            // Of two words in three pieces: the first's are ahead together, no one alone is.
                            {{0, {}}, {0.3f, 0.3f, 0.4f}},
                            {{0, {3}}, {0.4f, 0.1f, 0.5f}},  // a piece of the same word: 0-0 by 1.1 to 0.9
                            {{0, {3, 4}}, {0.0f, 0.2f, 0.8f}},
                            {{1, {}}, {0.5f, 0.5f, 0.0f}},
                            {{1, {3}}, {0.1f, 0.9f, 0.0f}},
                        });
  const Ids words_of_0{0, 0, 1}, words_of_1{0, 1};
  const std::vector<std::string> found = align(scorer, std::vector<TranslationToAlign>{
                                                           {0, first, {0, 0, 1}, words_of_0},
                                                           {0, second, {0}, words_of_0},
                                                           {0, {}, {}, words_of_0},
                                                           {1, other, {0, 1}, words_of_1},
                                                           {1, other, {0, 1}, {}},
                                                       });
  EXPECT_EQ(found, (std::vector<std::string>{"0-0 1-1", "0-0", "", "0-0 1-1", ""}));
}

}  // namespace
}  // namespace nmt
