#include "nmt_example/metrics/chrf.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

#include "nmt_example/metrics/metric.hpp"
#include "nmt_example/text/white_space.hpp"

namespace nmt {
namespace {

constexpr std::size_t most_characters = 6;
constexpr double beta_squared = 4;

struct Counts {
  double hypothesis = 0, reference = 0, matches = 0;
};

/// A line without white space, and where its characters begin.
class Characters {
 public:
  explicit Characters(std::string_view line) {
    while (!line.empty()) {
      std::size_t length = white_space_at(line);
      if (length == 0) {
        for (length = 1; length < line.size() && (static_cast<unsigned char>(line[length]) & 0xC0) == 0x80;)
          ++length;
        begins_.push_back(text_.size());
        text_.append(line.substr(0, length));
      }
      line.remove_prefix(length);
    }
    begins_.push_back(text_.size());
  }

  [[nodiscard]] std::map<std::string_view, std::size_t> ngrams(std::size_t order) const {
    std::map<std::string_view, std::size_t> counts;
    for (std::size_t i = 0; i + order < begins_.size(); ++i) {
      ++counts[std::string_view(text_).substr(begins_[i], begins_[i + order] - begins_[i])];
    }
    return counts;
  }

 private:
  std::string text_;
  std::vector<std::size_t> begins_;
};

void add(const Characters& hypothesis, const Characters& reference, std::size_t order, Counts& sum) {
  const auto references = reference.ngrams(order);
  // As in sacreBLEU, a segment whose reference is too short for this order does not count.
  if (references.empty()) return;
  for (const auto& [ngram, count] : references) sum.reference += static_cast<double>(count);
  for (const auto& [ngram, count] : hypothesis.ngrams(order)) {
    sum.hypothesis += static_cast<double>(count);
    if (const auto found = references.find(ngram); found != references.end()) {
      sum.matches += static_cast<double>(std::min(count, found->second));
    }
  }
}

}  // namespace

double corpus_chrf(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  require_pairs(hypotheses, references);
  std::array<Counts, most_characters> counts;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const Characters hypothesis(hypotheses[i]);
    const Characters reference(references[i]);
    for (std::size_t n = 0; n < most_characters; ++n) add(hypothesis, reference, n + 1, counts[n]);
  }
  double precision = 0;
  double recall = 0;
  double orders = 0;
  for (const Counts& count : counts) {
    if (count.hypothesis == 0 || count.reference == 0) continue;
    precision += count.matches / count.hypothesis;
    recall += count.matches / count.reference;
    ++orders;
  }
  if (precision == 0 || recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  return 100 * (1 + beta_squared) * precision * recall / (beta_squared * precision + recall);
}

}  // namespace nmt
