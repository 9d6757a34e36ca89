#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nmt_example/inference/beam_search.hpp"

namespace nmt {

/// A translation of a sentence that a scorer has begun.
struct TranslationToAlign {
  std::size_t sentence;                        ///< Its number in the batch.
  std::span<const std::int32_t> ids;           ///< Without </s>.
  std::vector<std::int32_t> target_words;      ///< Of each of them, as `Vocabulary::word_numbers`.
  std::span<const std::int32_t> source_words;  ///< Of each id of the source; empty: nothing is aligned.
};

/// Which word of the source each word of a translation belongs to, as "source-target" pairs, both counted
/// from 0, with blanks between: the one that got the most attention in the steps that chose the word's
/// pieces, all its pieces together, the first of equal ones. The scorer begins its sentences, with room for
/// as many rows as they have translations, which are in the order of sentences. Cost: a step of the scorer
/// for each word or piece of the longest translation, without the probabilities of words. Memory: a number
/// for each source word of each translation.
std::vector<std::string> align(NextWordScorer& scorer, std::span<const TranslationToAlign> translations);

}  // namespace nmt
