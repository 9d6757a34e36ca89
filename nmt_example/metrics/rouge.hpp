#pragma once

#include <span>
#include <string>

namespace nmt {

/// tensorflow/nmt's `rouge`: 100 times the mean over lines of ROUGE-L's F (Lin 2004, sentence level). With l
/// the length of the longest common subsequence of the words, P = l / words of the hypothesis, R = l / words
/// of the reference and b = P / (R + 1e-12):
///   F = (1 + b^2) R P / (R + b^2 P + 1e-12)
/// Words are the parts between single blanks. Cost of a line: product of its two lengths. Throws as
/// `require_pairs`.
double rouge_l(std::span<const std::string> hypotheses, std::span<const std::string> references);

}  // namespace nmt
