#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace nmt {

/// Corpus BLEU (Papineni et al. 2002), equal to sacreBLEU's (Post 2018) with one reference, cased, 13a tokens
/// and smoothing "exp".
struct BleuScore {
  double score = 0;                    ///< 0 to 100.
  std::array<double, 4> precisions{};  ///< In percent, smoothed, by order; all 0 if nothing matches.
  std::array<std::size_t, 4> matches{};
  std::array<std::size_t, 4> totals{};
  double brevity_penalty = 1;
  std::size_t hypothesis_length = 0;  ///< Tokens.
  std::size_t reference_length = 0;   ///< Tokens.
};

/// The settings of the score, in sacreBLEU's form.
inline constexpr std::string_view bleu_signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp";

/// Scores detokenised text; hypothesis i belongs to reference i. Memory: one segment's n-grams. Throws
/// `ddl::Error` (`invalid_argument`) if the counts differ or are 0.
BleuScore corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references);

/// "BLEU = 33.12 66.1/41.9/28.0/19.3 (BP = 1.000 ratio = 1.009 hyp_len = 12345 ref_len = 12230)"
std::string to_string(const BleuScore& score);

/// tensorflow/nmt's `bleu`, 0 to 100: the words are the parts between single blanks, and without a match of
/// some order the score is 0. Throws as `corpus_bleu`.
double tokenized_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references);

}  // namespace nmt
