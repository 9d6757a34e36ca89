#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "nmt_example/data/vocabulary.hpp"

namespace nmt {

/// Vectors that are given for a vocabulary's words.
struct EmbeddingVectors {
  static constexpr std::int64_t first_id = 3;  ///< The special words before it have none.
  std::int64_t size = 0;                       ///< Elements of a vector.
  std::vector<float> values;                   ///< Of the ids from `first_id`, one vector after the other.
};

/// Reads a file as of GloVe or word2vec: a word and its numbers on each line, separated by blanks; a first
/// line of two entries is a header. Words that are not in the vocabulary are skipped. Throws `io`, or
/// `corrupt_data`: a number that is none (with the line's number), vectors of unequal sizes, words of the
/// vocabulary without one.
EmbeddingVectors read_embedding_vectors(const std::filesystem::path& path, const Vocabulary& vocabulary);

}  // namespace nmt
