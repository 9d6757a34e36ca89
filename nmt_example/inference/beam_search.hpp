#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nmt {

struct SearchSettings {
  int beam_width = 1;  ///< 1: greedy.
  double length_penalty = 0.0;
  double coverage_penalty = 0.0;
  std::int64_t max_steps = 0;  ///< Most words of a translation; 0: twice the source's length plus 10.
  int translations = 1;        ///< To return of each sentence; at most beam_width.
};

/// What a search needs from a model. A row is a hypothesis that goes on.
class NextWordScorer {
 public:
  virtual ~NextWordScorer() = default;
  /// Row r continues the hypothesis of row parents[r] of the step before with words[r]; in the first step, it
  /// begins sentence parents[r]. There is at least one row, and rows are in the order of sentences.
  virtual void step(std::span<const std::int32_t> parents, std::span<const std::int32_t> words) = 0;

  // Of the last step, valid until the next call.
  /// [rows * (2 k + 1)], k = beam_width + 2 or, if it has fewer words, the vocabulary's size: of each row,
  /// the k most probable next words, the most probable first and the lower of equal ones; their
  /// log-probabilities; that of </s>.
  [[nodiscard]] virtual std::span<const double> best_words() = 0;
  /// [rows * 2]: of each row, a next word drawn by numbers[row], from 0 to below 1, and its log-probability.
  /// Each word but <s> is drawn with its probability to the power 1 / temperature.
  [[nodiscard]] virtual std::span<const double> draw_words(std::span<const double> numbers,
                                                           double temperature) = 0;
  /// [rows * source_steps]; empty without attention.
  [[nodiscard]] virtual std::span<const float> attention_weights() = 0;
};

struct Translation {
  std::vector<std::int32_t> words;  ///< Without </s>.
  double log_probability = 0;
  double score = 0;
};

/// Beam search as in tensorflow/nmt: all hypotheses of a sentence, including ended ones, compete for its beam
/// by score = log p / ((5 + length) / 6)^length_penalty, to which an ended one adds coverage_penalty * sum_s
/// log min(attention received by s, 1) (Wu et al. 2016, equation 14). A sentence's search ends when all its
/// hypotheses are ended or have max_steps words. Returns each sentence's best hypotheses, the best first:
/// those that were cut off at max_steps after those that have ended. Where the beam has fewer hypotheses than
/// are to be returned, the rest are without words and have a score of minus infinity. `length` is without
/// </s>. Ties go to the lower row and word. (tensorflow/nmt allows twice the longest source of a batch, so
/// its results depend on the batches.) Cost: at most max_steps scorer steps.
std::vector<Translation> beam_search(NextWordScorer& scorer, std::span<const std::int32_t> source_lengths,
                                     const SearchSettings& settings);

}  // namespace nmt
