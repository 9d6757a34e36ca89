#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace matrix {

/// A value, by its number, for each parameter.
using Row = std::vector<int>;

struct PairwiseProblem {
  std::vector<int> values;  ///< How many each parameter has.
  /// Whether two values of two parameters may be in one row; symmetric.
  std::function<bool(std::size_t parameter, int value, std::size_t other_parameter, int other_value)> allowed;
};

/// Rows in which every pair of values of two parameters occurs that can occur in a row at all. Deterministic.
/// Greedy: each row is built around the first pair that is missing, with as many others as its parameters
/// give one by one (as AETG: Cohen, Dalal, Fredman and Patton, 1997). Parameters with many constraints should
/// come first.
std::vector<Row> pairwise_cover(const PairwiseProblem& problem);

}  // namespace matrix
