#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "matrix/case.hpp"

namespace matrix {

/// The ranks' inputs, and their serial reduction in long double to compare with. Elements repeat after 1,031,
/// a prime that divides no cut of a buffer. Element i of a rank's input has index i; element i of piece r of
/// an all_gather has index r count + i. Cases of the same type, op, kind of values and number of ranks share
/// the computed values. Any thread may make and use objects.
class Inputs {
 public:
  explicit Inputs(const Case& one);

  /// Writes a rank's elements from index `first` on.
  void write(int rank, std::size_t first, std::span<std::byte> to) const;

  /// The number of elements whose bits differ from a rank's input; all NaNs count as equal.
  [[nodiscard]] std::size_t differ_from_input(int rank, std::size_t first,
                                              std::span<const std::byte> found) const;
  /// The number of elements that differ from the reduction. It must be exact for integers, for integer-valued
  /// floats
  /// (`avg`: after one rounding), and for `min` and `max`; else within gamma(n-1) sum|x|, where gamma(k) = k
  /// u / (1 - k u) and u is half the distance from 1 to the next number of the type (Higham, 2002, Accuracy
  /// and Stability of Numerical Algorithms, 4.2). It must be NaN exactly where a rank's input is NaN.
  [[nodiscard]] std::size_t differ_from_reduction(std::size_t first, std::span<const std::byte> found) const;

  static constexpr std::size_t period = 1031;

 private:
  struct Tables;
  static std::shared_ptr<const Tables> tables_of(const Case& one);

  Case case_;
  std::shared_ptr<const Tables> tables_;
};

}  // namespace matrix
