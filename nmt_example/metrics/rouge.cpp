#include "nmt_example/metrics/rouge.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "nmt_example/metrics/metric.hpp"
#include "nmt_example/text/white_space.hpp"

namespace nmt {
namespace {

using Words = std::vector<std::string_view>;

std::size_t longest_common_subsequence(const Words& a, const Words& b) {
  std::vector<std::size_t> lengths(b.size() + 1);
  for (const std::string_view word : a) {
    std::size_t diagonal = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t longest = word == b[j] ? diagonal + 1 : std::max(lengths[j], lengths[j + 1]);
      diagonal = std::exchange(lengths[j + 1], longest);
    }
  }
  return lengths.back();
}

}  // namespace

double rouge_l(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  require_pairs(hypotheses, references);
  double sum = 0;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const Words hypothesis = split_at_each_blank(stripped(hypotheses[i]));
    const Words reference = split_at_each_blank(stripped(references[i]));
    const auto common = static_cast<double>(longest_common_subsequence(hypothesis, reference));
    const double recall = common / static_cast<double>(reference.size());
    const double precision = common / static_cast<double>(hypothesis.size());
    const double beta = precision / (recall + 1e-12);
    sum += (1 + beta * beta) * recall * precision / (recall + beta * beta * precision + 1e-12);
  }
  return 100 * sum / static_cast<double>(hypotheses.size());
}

}  // namespace nmt
