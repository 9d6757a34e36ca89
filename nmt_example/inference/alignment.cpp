#include "nmt_example/inference/alignment.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "nmt_example/data/vocabulary.hpp"

namespace nmt {
namespace {

/// Of one translation, word by word.
class AttentionOfWord {
 public:
  explicit AttentionOfWord(const TranslationToAlign& translation)
      : source_words_(translation.source_words), target_words_(translation.target_words) {
    if (!source_words_.empty()) received_.resize(static_cast<std::size_t>(source_words_.back()) + 1);
  }

  /// Adds the attention in the step that chose id `t`.
  void add(std::size_t t, std::span<const float> weights) {
    for (std::size_t s = 0; s < source_words_.size(); ++s)
      received_[static_cast<std::size_t>(source_words_[s])] += weights[s];
    const bool word_goes_on = t + 1 < target_words_.size() && target_words_[t + 1] == target_words_[t];
    if (received_.empty() || word_goes_on) return;
    const auto most = std::ranges::max_element(received_) - received_.begin();
    pairs_ += fmt::format("{}{}-{}", pairs_.empty() ? "" : " ", most, target_words_[t]);
    std::ranges::fill(received_, 0.0f);
  }

  [[nodiscard]] const std::string& pairs() const noexcept { return pairs_; }

 private:
  std::span<const std::int32_t> source_words_, target_words_;
  std::vector<float> received_;  // by each word of the source
  std::string pairs_;
};

}  // namespace

std::vector<std::string> align(NextWordScorer& scorer, std::span<const TranslationToAlign> translations) {
  std::vector<AttentionOfWord> attention(translations.begin(), translations.end());
  std::vector<std::size_t> active;  // of each row of a step
  std::vector<std::int32_t> parents, words;
  for (std::size_t i = 0; i < translations.size(); ++i) {
    if (translations[i].ids.empty()) continue;
    active.push_back(i);
    parents.push_back(static_cast<std::int32_t>(translations[i].sentence));
    words.push_back(Vocabulary::bos_id);
  }
  for (std::size_t t = 0; !active.empty(); ++t) {
    scorer.step(parents, words);
    const std::span<const float> weights = scorer.attention_weights();
    const std::size_t steps = weights.size() / active.size();
    std::size_t kept = 0;
    for (std::size_t r = 0; r < active.size(); ++r) {
      const auto& ids = translations[active[r]].ids;
      attention[active[r]].add(t, weights.subspan(r * steps, steps));
      if (t + 1 == ids.size()) continue;
      active[kept] = active[r];
      parents[kept] = static_cast<std::int32_t>(r);
      words[kept++] = ids[t];
    }
    active.resize(kept);
    parents.resize(kept);
    words.resize(kept);
  }
  std::vector<std::string> pairs;
  for (const AttentionOfWord& of_one : attention) pairs.push_back(of_one.pairs());
  return pairs;
}

}  // namespace nmt
