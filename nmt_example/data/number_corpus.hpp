#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/hash.hpp"
#include "nmt_example/data/parallel_text.hpp"

namespace nmt {

/// The built-in English-German corpus: short sentences with numbers, dates, clock times, prices and
/// durations, made by a grammar. It needs no download, and a small model learns it in minutes.
///
/// Held-out data. A *number phrase* is a maximal run of number words in the English sentence: cardinal
/// and ordinal words, "hundred", "thousand", "oh", and "and" between two of them ("at three forty seven
/// on the twenty third of May" has the phrases "three forty seven" and "twenty third"). Each phrase
/// belongs to exactly one split, by a hash of its words: 90% train, 5% dev, 5% test; a phrase of a
/// single word ("seven", "third") always belongs to train, so that a held-out phrase can be put
/// together from parts that train shows. A sentence of a split uses that split's phrases only and has
/// at least one. So no number phrase of dev or test occurs in train. Templates that need single words
/// ("half past three") are in train alone.
///
/// Each English sentence has exactly one German translation. English numbers are spaced words without
/// hyphens, so "twenty-seven" is written "twenty seven".
enum class CorpusSplit { train, dev, test };

/// The split that a number phrase belongs to, given its English words.
CorpusSplit split_of_number_phrase(std::string_view english_words);

/// One kind of sentence, in several frames.
struct NumberTemplate {
  std::string_view name;
  std::size_t frames;
  bool train_only;
};
std::vector<NumberTemplate> number_templates();

struct NumberSentence {
  std::string source;          ///< English.
  std::string target;          ///< German.
  std::size_t template_index;  ///< Into `number_templates()`.
};

/// An endless sequence of sentences, the same for the same split and seed on every machine. Costs some
/// microseconds a sentence of train, some ten of dev and test (values of other splits are drawn again).
class NumberCorpusGenerator {
 public:
  NumberCorpusGenerator(CorpusSplit split, std::uint64_t seed);

  NumberSentence next();

 private:
  CorpusSplit split_;
  ddl::SplitMix64 random_;
};

/// The first `sentences` of a generator. Some hundred million sources are possible, so repetitions are
/// few but not excluded (short phrases such as percentages).
ParallelText number_corpus(CorpusSplit split, std::size_t sentences, std::uint64_t seed);

}  // namespace nmt
