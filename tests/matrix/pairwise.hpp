#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace matrix {

/// The number of a value for each parameter.
using Row = std::vector<int>;

struct PairwiseProblem {
  std::vector<int> values;  ///< Number of values of each parameter.
  /// Whether two parameters' values may be in one row; symmetric.
  std::function<bool(std::size_t parameter, int value, std::size_t other_parameter, int other_value)> allowed;
};

/// Rows in which every possible pair of two parameters' values occurs. Deterministic and greedy: each row is
/// built around the first missing pair, and each further parameter gets the value that covers the most
/// missing pairs (as AETG: Cohen, Dalal, Fredman and Patton, 1997). Parameters with many constraints should
/// come first.
std::vector<Row> pairwise_cover(const PairwiseProblem& problem);

}  // namespace matrix
