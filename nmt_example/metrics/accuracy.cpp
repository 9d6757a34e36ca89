#include "nmt_example/metrics/accuracy.hpp"

#include <algorithm>

#include "nmt_example/metrics/metric.hpp"
#include "nmt_example/text/white_space.hpp"

namespace nmt {

double accuracy(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  require_pairs(hypotheses, references);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    equal += stripped(hypotheses[i]) == stripped(references[i]) ? 1 : 0;
  }
  return 100 * static_cast<double>(equal) / static_cast<double>(hypotheses.size());
}

double word_accuracy(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  require_pairs(hypotheses, references);
  double sum = 0;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const auto hypothesis = split_at_each_blank(stripped(hypotheses[i]));
    const auto reference = split_at_each_blank(stripped(references[i]));
    std::size_t equal = 0;
    for (std::size_t w = 0; w < std::min(hypothesis.size(), reference.size()); ++w) {
      equal += hypothesis[w] == reference[w] ? 1 : 0;
    }
    sum +=
        100 * static_cast<double>(equal) / static_cast<double>(std::max(hypothesis.size(), reference.size()));
  }
  return sum / static_cast<double>(hypotheses.size());
}

}  // namespace nmt
