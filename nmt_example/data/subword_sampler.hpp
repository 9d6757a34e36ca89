#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nmt_example/backend/philox.hpp"
#include "nmt_example/data/vocabulary.hpp"

namespace nmt {

/// Numbers from 0 to below 1 that depend on the key, the sample and how many were drawn before.
class SampleRandom {
 public:
  SampleRandom(PhiloxKey key, std::uint32_t sample) noexcept : key_(key), sample_(sample) {}
  double next() noexcept;

 private:
  PhiloxKey key_;
  std::uint32_t sample_, drawn_ = 0;
};

/// Splits words at random into the pieces of a SentencePiece model, so that training sees rare pieces more
/// often. A unigram model's split into pieces p_1, p_2, ... has the probability (P(p_1) P(p_2) ...)^strength
/// / Z among all splits of its word (Kudo 2018, with all splits as candidates). A BPE model's merges are each
/// left out with probability `strength` whenever they could be made (BPE-dropout, Provilkov et al. 2020).
///
/// SentencePiece can do both, but from one generator for each thread, so that a sentence's split would
/// depend on which rank reads it, and when. Remembers the splits of the words that it has seen. Not
/// thread-safe.
class SubwordSampler {
 public:
  /// Throws `unsupported` if the vocabulary is no SentencePiece model, `invalid_argument` for a BPE model and
  /// a strength above 1.
  SubwordSampler(const Vocabulary& vocabulary, double strength);

  /// Sets `out` to another split of an encoded sentence, of the same text. A word with a piece that stands
  /// for unknown text, or for a byte, keeps its split.
  void split(std::span<const std::int32_t> ids, SampleRandom random, std::vector<std::int32_t>& out);

 private:
  static constexpr std::size_t most_words = 1 << 16;  // that are remembered

  /// A piece that may be the last of a split of a word's first bytes.
  struct Last {
    std::uint32_t begin;  // where the piece begins in the word
    std::int32_t id;
    double up_to;  // sum of the probabilities of this and the Lasts before it
  };
  /// Of a unigram model: for each number of first bytes, what may be last.
  using Lattice = std::vector<std::vector<Last>>;

  [[nodiscard]] bool is_text(std::int32_t id) const;
  [[nodiscard]] Lattice lattice_of(std::string_view word) const;
  void split_word(std::span<const std::int32_t> ids, SampleRandom& random, std::vector<std::int32_t>& out);
  void sample_unigram(const Lattice& lattice, SampleRandom& random, std::vector<std::int32_t>& out);
  void sample_bpe(std::string_view word, SampleRandom& random, std::vector<std::int32_t>& out);

  SubwordPieces pieces_;
  double strength_;
  std::vector<std::string> texts_;                          // of all pieces
  std::unordered_map<std::string_view, std::int32_t> ids_;  // of pieces that are text
  std::size_t longest_ = 0;                                 // piece, in bytes
  std::unordered_map<std::string, Lattice> lattices_;
  std::string word_;
  std::vector<std::uint32_t> ends_;
  std::vector<std::int32_t> reversed_;
};

}  // namespace nmt
