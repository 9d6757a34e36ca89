#include "matrix/pairwise.hpp"

#include <algorithm>
#include <numeric>

namespace matrix {

namespace {

constexpr int unset = -1;

class Cover {
 public:
  explicit Cover(const PairwiseProblem& problem) : problem_(problem), parameters_(problem.values.size()) {
    offsets_.resize(parameters_);
    std::exclusive_scan(problem.values.begin(), problem.values.end(), offsets_.begin(), 0);
    total_ = parameters_ == 0 ? 0 : static_cast<std::size_t>(offsets_.back() + problem.values.back());
    missing_.assign(total_ * total_, true);
  }

  std::vector<Row> build() {
    for (std::size_t i = 0; i < parameters_; ++i) {
      for (std::size_t j = i + 1; j < parameters_; ++j) {
        for (int a = 0; a < problem_.values[i]; ++a) {
          for (int b = 0; b < problem_.values[j]; ++b) {
            if (missing(i, a, j, b) && problem_.allowed(i, a, j, b)) add_row_with(i, a, j, b);
          }
        }
      }
    }
    return std::move(rows_);
  }

 private:
  [[nodiscard]] std::size_t index(std::size_t i, int a, std::size_t j, int b) const {
    return static_cast<std::size_t>(offsets_[i] + a) * total_ + static_cast<std::size_t>(offsets_[j] + b);
  }
  [[nodiscard]] bool missing(std::size_t i, int a, std::size_t j, int b) const {
    return missing_[index(i, a, j, b)];
  }

  void add_row_with(std::size_t i, int a, std::size_t j, int b) {
    Row row(parameters_, unset);
    row[i] = a;
    row[j] = b;
    if (!complete(row, 0)) return;  // the pair cannot occur
    for (std::size_t p = 0; p < parameters_; ++p) {
      for (std::size_t q = 0; q < parameters_; ++q) missing_[index(p, row[p], q, row[q])] = false;
    }
    rows_.push_back(std::move(row));
  }

  /// Fills in the parameters from `parameter` on, preferring values that cover the most missing pairs.
  bool complete(Row& row, std::size_t parameter) {
    while (parameter < parameters_ && row[parameter] != unset) ++parameter;
    if (parameter == parameters_) return true;
    std::vector<std::pair<int, int>> choices;  // -gain, value
    const int values = problem_.values[parameter];
    for (int k = 0; k < values; ++k) {
      // Starts at a different value for each row, so that values without gain take turns.
      const int value = (k + static_cast<int>(rows_.size())) % values;
      if (const int gain = gain_of(row, parameter, value); gain >= 0) choices.emplace_back(-gain, value);
    }
    std::ranges::stable_sort(choices, {}, &std::pair<int, int>::first);
    for (const auto& [cost, value] : choices) {
      row[parameter] = value;
      if (complete(row, parameter + 1)) return true;
    }
    row[parameter] = unset;
    return false;
  }

  /// The number of missing pairs that a value would cover; -1 if it is not allowed.
  [[nodiscard]] int gain_of(const Row& row, std::size_t parameter, int value) const {
    int gain = 0;
    for (std::size_t other = 0; other < parameters_; ++other) {
      if (row[other] == unset) continue;
      if (!problem_.allowed(parameter, value, other, row[other])) return -1;
      if (missing(parameter, value, other, row[other])) ++gain;
    }
    return gain;
  }

  const PairwiseProblem& problem_;
  std::size_t parameters_;
  std::vector<int> offsets_;
  std::size_t total_ = 0;  // number of values of all parameters
  std::vector<bool> missing_;
  std::vector<Row> rows_;
};

}  // namespace

std::vector<Row> pairwise_cover(const PairwiseProblem& problem) { return Cover(problem).build(); }

}  // namespace matrix
