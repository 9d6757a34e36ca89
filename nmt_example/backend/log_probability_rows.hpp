#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "nmt_example/backend/cell_row.hpp"

// What a search does with log-probabilities, the same on hosts and on devices.

namespace nmt {

/// log(exp(a) + exp(b))
template <typename Real>
NMT_HOST_DEVICE Real log_add_exp(Real a, Real b) {
  constexpr Real minus_infinity = -std::numeric_limits<Real>::infinity();
  const Real larger = a < b ? b : a, smaller = a < b ? a : b;
  return smaller == minus_infinity ? larger : larger + std::log(1 + std::exp(smaller - larger));
}

/// A row of `Backend::draw_columns`, which members of the team have consecutive parts of. Its sums are added
/// in the same order each time.
template <typename Real, typename Team>
NMT_HOST_DEVICE void draw_column(const Real* row, std::int64_t columns, double number, double temperature,
                                 std::int64_t excluded, double* drawn, const Team& team) {
  const std::int64_t of_each = (columns + team.step() - 1) / team.step();
  const std::int64_t begin = std::min(team.first() * of_each, columns);
  const std::int64_t end = std::min(begin + of_each, columns);
  Real largest = -std::numeric_limits<Real>::infinity();
  for (std::int64_t v = begin; v < end; ++v)
    if (v != excluded && row[v] > largest) largest = row[v];
  largest = team.max(largest);
  const auto weight = [&](std::int64_t v) {
    if (v == excluded) return 0.0;
    return std::exp((static_cast<double>(row[v]) - static_cast<double>(largest)) / temperature);
  };
  double own = 0;
  for (std::int64_t v = begin; v < end; ++v) own += weight(v);
  const double before = team.sum_before(own);
  const double total = team.max(own > 0 ? before + own : 0.0);
  // Rounding could make number * total equal to the total, which no sum exceeds.
  const double wanted = number * total;
  std::int64_t left = 0;  // columns from the one found on
  double sum = 0;
  for (std::int64_t v = begin; v < end && left == 0; ++v) {
    const double more = weight(v);
    sum += more;
    if (more > 0 && (before + sum > wanted || before + sum == total)) left = columns - v;
  }
  left = team.max(left);
  if (team.first() != 0) return;
  const std::int64_t column = left > 0 ? columns - left : 0;  // 0: of numbers that are not finite
  drawn[0] = static_cast<double>(column);
  drawn[1] = static_cast<double>(row[column]);
}

}  // namespace nmt
