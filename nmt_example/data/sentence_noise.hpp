#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nmt_example/data/dataset.hpp"
#include "nmt_example/data/subword_sampler.hpp"

namespace nmt {

struct NoiseSettings {
  double word_dropout = 0;      ///< Probability that the model reads <unk> instead of a word.
  double subword_sampling = 0;  ///< The sampler's strength; 0: words keep their split.
  std::uint64_t seed = 0;
};

/// Random changes of sentences that are trained on, against overfitting. What becomes of a sentence depends
/// on the seed, the step and the sentence's number alone, not on the batch or the rank. Not thread-safe.
class SentenceNoise {
 public:
  /// Throws as `SubwordSampler`.
  SentenceNoise(const Vocabulary& source, const Vocabulary& target, const NoiseSettings& settings);

  /// A sentence of so many pieces keeps its split if another one would have more than this.
  [[nodiscard]] static constexpr std::size_t most_pieces(std::size_t pieces) noexcept {
    return pieces + pieces / 2 + 1;
  }
  /// Draws the splits of a batch's sentences. One that would be longer than `most_pieces`, or the data set's
  /// longest, keeps its split.
  void split(const Dataset& dataset, std::span<const std::size_t> samples, std::uint64_t step);
  /// Of the batch's b-th sample.
  [[nodiscard]] std::span<const std::int32_t> source(std::size_t b) const { return sides_[0].sentences[b]; }
  [[nodiscard]] std::span<const std::int32_t> target(std::size_t b) const { return sides_[1].sentences[b]; }

  /// Replaces words that the model reads; those that it is to predict stay.
  void drop_words(Batch& batch, std::uint64_t step) const;

 private:
  struct Side {
    std::optional<SubwordSampler> sampler;
    std::vector<std::vector<std::int32_t>> sentences;
  };

  void split(Side& side, std::size_t b, std::span<const std::int32_t> ids, std::size_t longest,
             SampleRandom random);

  NoiseSettings settings_;
  std::array<Side, 2> sides_;  // source and target
};

}  // namespace nmt
