#pragma once

#include <cstdint>
#include <string>

#include "nmt_example/options/options.hpp"

namespace nmt {

/// The name under which --early_stopping takes the dev set's perplexity.
inline constexpr std::string_view dev_perplexity = "dev_ppl";

/// How long a score of the dev set has not become better. Of the evaluations that are due every so many
/// steps, and of no others, so that a resumed run stops where it would have stopped.
struct EarlyStopping {
  std::string metric;  ///< Whose scores these are; empty: none yet.
  double best = 0;
  std::uint64_t step = 0;  ///< Of the best score.
  int evaluations = 0;     ///< Since then.

  /// Notes a score after `now` steps; scores of another metric are forgotten. A score that is not a number is
  /// no better one.
  void note(std::string_view name, double score, std::uint64_t now);
  /// Why training stops, for people; empty: it goes on.
  [[nodiscard]] std::string reason(const Options& options) const;
};

}  // namespace nmt
