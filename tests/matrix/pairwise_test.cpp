#include "matrix/pairwise.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace matrix {
namespace {

using Pair = std::tuple<std::size_t, int, std::size_t, int>;

std::set<Pair> pairs_of(const std::vector<Row>& rows) {
  std::set<Pair> pairs;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (std::size_t j = i + 1; j < row.size(); ++j) pairs.insert({i, row[i], j, row[j]});
    }
  }
  return pairs;
}

/// All rows that are allowed.
std::vector<Row> all_rows(const PairwiseProblem& problem) {
  std::vector<Row> rows = {{}};
  for (std::size_t p = 0; p < problem.values.size(); ++p) {
    std::vector<Row> longer;
    for (const Row& row : rows) {
      for (int value = 0; value < problem.values[p]; ++value) {
        bool fits = true;
        for (std::size_t q = 0; q < p; ++q) fits = fits && problem.allowed(p, value, q, row[q]);
        if (!fits) continue;
        longer.push_back(row);
        longer.back().push_back(value);
      }
    }
    rows = std::move(longer);
  }
  return rows;
}

// A pair that is left out is a combination that CI never runs.
TEST(PairwiseCover, HasEveryPairThatIsPossible) {
  const PairwiseProblem free = {{5, 4, 3, 3, 2, 2}, [](auto...) { return true; }};
  // The last value of a parameter goes with the first one of the next alone, so some pairs further apart
  // cannot be.
  const PairwiseProblem bound = {{4, 4, 3, 3, 2}, [](std::size_t p, int a, std::size_t q, int b) {
                                   if (p > q) {
                                     std::swap(p, q);
                                     std::swap(a, b);
                                   }
                                   constexpr int last[] = {3, 3, 2, 2, 1};
                                   return q != p + 1 || a != last[p] || b == 0;
                                 }};
  for (const PairwiseProblem& problem : {free, bound}) {
    const std::vector<Row> cover = pairwise_cover(problem);
    const std::vector<Row> all = all_rows(problem);
    EXPECT_EQ(pairs_of(cover), pairs_of(all));
    const std::set<Row> possible(all.begin(), all.end());
    for (const Row& row : cover) EXPECT_TRUE(possible.contains(row));
    EXPECT_LT(cover.size() * 4, all.size());
    EXPECT_EQ(cover, pairwise_cover(problem));
  }
}

TEST(PairwiseCover, NothingIsCoveredByNothing) { EXPECT_TRUE(pairwise_cover({{}, {}}).empty()); }

}  // namespace
}  // namespace matrix
