#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nmt {

struct SearchSettings {
  int beam_width = 1;  ///< 1: greedy.
  double length_penalty = 0.0;
  double coverage_penalty = 0.0;
  std::int64_t max_steps = 0;  ///< Words of the longest translation; 0: twice the source's and 10.
};

/// What a search asks of a model; rows are sentence * beam_width + hypothesis.
class NextWordScorer {
 public:
  virtual ~NextWordScorer() = default;
  /// Row r continues what row parents[r] held with words[r].
  virtual void step(std::span<const std::int32_t> parents, std::span<const std::int32_t> words) = 0;
  /// [rows * vocabulary], of the words that may follow.
  [[nodiscard]] virtual std::span<const float> log_probabilities() const = 0;
  /// [rows * source_steps]; empty without attention.
  [[nodiscard]] virtual std::span<const float> attention_weights() const = 0;
};

struct Translation {
  std::vector<std::int32_t> words;  ///< Without </s>.
  double log_probability = 0;
  double score = 0;
};

/// Beam search as tensorflow/nmt's: all hypotheses of a sentence, ended ones too, compete for its beam
/// by score = log p / ((5 + length) / 6)^length_penalty, to which an ended one adds coverage_penalty *
/// sum_s log min(attention received by s, 1) (Wu et al. 2016, equation 14). It ends when all are ended
/// or have max_steps words. Returns each sentence's best: one that was cut off at max_steps only where none
/// in the beam has ended. `length` is without </s>. Ties go to the lower row and word.
/// (tensorflow/nmt allows twice the batch's longest source, so that its results depend on the batches.)
/// Cost: at most max_steps scorer steps, and one pass over the log-probabilities each.
std::vector<Translation> beam_search(NextWordScorer& scorer, std::span<const std::int32_t> source_lengths,
                                     std::int64_t vocabulary, const SearchSettings& settings);

}  // namespace nmt
