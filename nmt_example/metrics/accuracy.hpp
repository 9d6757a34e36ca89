#pragma once

#include <span>
#include <string>

namespace nmt {

/// tensorflow/nmt's `accuracy`: the percentage of hypotheses that equal their reference, white space at the
/// ends aside. Throws as `require_pairs`.
double accuracy(std::span<const std::string> hypotheses, std::span<const std::string> references);

/// tensorflow/nmt's `word_accuracy`: the mean over lines of the percentage of positions with the same word,
/// of as many as the longer side has. Words are the parts between single blanks. Throws as `require_pairs`.
double word_accuracy(std::span<const std::string> hypotheses, std::span<const std::string> references);

}  // namespace nmt
