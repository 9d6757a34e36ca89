#include "nmt_example/metrics/bleu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "nmt_example/metrics/metric.hpp"
#include "nmt_example/metrics/tokenizer_13a.hpp"
#include "nmt_example/text/white_space.hpp"

namespace nmt {
namespace {

constexpr std::size_t max_order = 4;
using Ngram = std::array<std::uint32_t, max_order>;  // token numbers from 1; 0 after the last
using NgramCounts = std::map<Ngram, std::size_t>;

class TokenNumbers {
 public:
  std::vector<std::uint32_t> of(std::vector<std::string> tokens) {
    std::vector<std::uint32_t> result;
    result.reserve(tokens.size());
    for (std::string& token : tokens) {
      const auto next = static_cast<std::uint32_t>(numbers_.size() + 1);
      result.push_back(numbers_.try_emplace(std::move(token), next).first->second);
    }
    return result;
  }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

NgramCounts count_ngrams(std::span<const std::uint32_t> tokens) {
  NgramCounts counts;
  for (std::size_t begin = 0; begin < tokens.size(); ++begin) {
    Ngram ngram{};
    for (std::size_t n = 0; n < max_order && begin + n < tokens.size(); ++n) {
      ngram[n] = tokens[begin + n];
      ++counts[ngram];
    }
  }
  return counts;
}

/// Precisions with sacreBLEU's "exp" smoothing: the k-th order without a match counts 1/2^k matches.
void finish(BleuScore& score) {
  const auto hypothesis_length = static_cast<double>(score.hypothesis_length);
  const auto reference_length = static_cast<double>(score.reference_length);
  if (score.hypothesis_length < score.reference_length) {
    score.brevity_penalty =
        score.hypothesis_length == 0 ? 0.0 : std::exp(1.0 - reference_length / hypothesis_length);
  }
  if (std::all_of(score.matches.begin(), score.matches.end(), [](std::size_t m) { return m == 0; })) return;

  double smoothing = 1;
  double sum_of_logs = 0;
  for (std::size_t n = 0; n < max_order; ++n) {
    // No segment is long enough for this order: as in sacreBLEU, a precision of 0 makes the score 0.
    if (score.totals[n] == 0) return;
    const auto total = static_cast<double>(score.totals[n]);
    if (score.matches[n] == 0) {
      smoothing *= 2;
      score.precisions[n] = 100.0 / (smoothing * total);
    } else {
      score.precisions[n] = 100.0 * static_cast<double>(score.matches[n]) / total;
    }
    sum_of_logs += std::log(score.precisions[n]);
  }
  score.score = score.brevity_penalty * std::exp(sum_of_logs / max_order);
}

/// Counts matches of the tokens that `tokenize` makes of each line.
template <typename Tokenize>
BleuScore count_matches(std::span<const std::string> hypotheses, std::span<const std::string> references,
                        Tokenize tokenize) {
  require_pairs(hypotheses, references);
  BleuScore score;
  TokenNumbers numbers;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const auto hypothesis = numbers.of(tokenize(hypotheses[i]));
    const auto reference = numbers.of(tokenize(references[i]));
    score.hypothesis_length += hypothesis.size();
    score.reference_length += reference.size();
    const NgramCounts reference_counts = count_ngrams(reference);
    for (const auto& [ngram, count] : count_ngrams(hypothesis)) {
      const auto order =
          static_cast<std::size_t>(std::find(ngram.begin(), ngram.end(), 0U) - ngram.begin() - 1);
      score.totals[order] += count;
      if (const auto found = reference_counts.find(ngram); found != reference_counts.end()) {
        score.matches[order] += std::min(count, found->second);
      }
    }
  }
  return score;
}

}  // namespace

BleuScore corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  BleuScore score = count_matches(hypotheses, references, tokenize_13a);
  finish(score);
  return score;
}

double tokenized_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  const BleuScore score = count_matches(hypotheses, references, [](std::string_view line) {
    const auto words = split_at_each_blank(stripped(line));
    return std::vector<std::string>(words.begin(), words.end());
  });
  double sum_of_logs = 0;
  for (std::size_t n = 0; n < max_order; ++n) {
    if (score.matches[n] == 0) return 0;
    sum_of_logs += std::log(static_cast<double>(score.matches[n]) / static_cast<double>(score.totals[n]));
  }
  const double ratio =
      static_cast<double>(score.hypothesis_length) / static_cast<double>(score.reference_length);
  return 100 * std::exp(sum_of_logs / max_order) * (ratio > 1 ? 1 : std::exp(1 - 1 / ratio));
}

std::string to_string(const BleuScore& score) {
  const double ratio = score.reference_length == 0 ? 0.0
                                                   : static_cast<double>(score.hypothesis_length) /
                                                         static_cast<double>(score.reference_length);
  return fmt::format(
      "BLEU = {:.2f} {:.1f}/{:.1f}/{:.1f}/{:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})",
      score.score, score.precisions[0], score.precisions[1], score.precisions[2], score.precisions[3],
      score.brevity_penalty, ratio, score.hypothesis_length, score.reference_length);
}

}  // namespace nmt
