#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nmt_example/inference/beam_search.hpp"

namespace nmt {

struct SamplingSettings {
  double temperature = 1.0;  ///< Above 0. A word's probability is raised to the power 1/temperature.
  int samples = 1;           ///< Of each sentence.
  std::uint64_t seed = 1;
  std::int64_t max_steps = 0;  ///< Most words of a translation; 0: twice the source's length plus 10.
};

/// Draws each next word from the model's distribution (tensorflow/nmt's infer_mode=sample); <s> is never
/// drawn. The numbers come from a counter-based generator keyed by (seed, number of the sentence, sample,
/// step), so they depend neither on the batch nor on the rank. `numbers` are those of the sentences. Returns
/// `samples` translations of each sentence, in order; their score is their log-probability.
std::vector<Translation> sample(NextWordScorer& scorer, std::span<const std::int32_t> source_lengths,
                                std::span<const std::uint64_t> numbers, const SamplingSettings& settings);

}  // namespace nmt
