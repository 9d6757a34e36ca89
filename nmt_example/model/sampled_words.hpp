#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nmt {

/// The words of a step's sampled softmax: those that are drawn, and behind them the targets that are not.
/// Words are drawn as by TensorFlow's log_uniform_candidate_sampler: word k of V has probability log((k + 2)
/// / (k + 1)) / log(V + 1), and draws go on until they have given `drawn` different words. So frequent words
/// should come first in the vocabulary. After the first step, nothing is allocated.
class SampledWords {
 public:
  /// `drawn` is at most `vocabulary`.
  SampledWords(std::int64_t vocabulary, std::int64_t drawn);

  /// Starts a step. The same seed and step give the same words.
  void draw(std::uint64_t seed, std::uint64_t step);
  /// The place of a word in `ids`, where it is appended if it is missing.
  std::int32_t place_of(std::int32_t word);

  [[nodiscard]] std::span<const std::int32_t> ids() const noexcept { return ids_; }
  [[nodiscard]] std::int64_t drawn() const noexcept { return drawn_; }
  /// How many times the step has drawn.
  [[nodiscard]] std::int64_t tries() const noexcept { return tries_; }
  /// The probability that as many draws give the word at least once.
  [[nodiscard]] double expected_count(std::int32_t word) const;

 private:
  std::int64_t drawn_;
  double log_range_;
  std::vector<std::int32_t> ids_;
  std::vector<std::int32_t> places_;  // of every word of the vocabulary, or -1
  std::int64_t tries_ = 0;
};

}  // namespace nmt
