#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "matrix/case.hpp"

namespace matrix {

/// What ranks put in, and a serial result of it in long double to compare with. Elements repeat after 1,031,
/// a prime that no cut of a buffer is a multiple of. Element i of a rank's input has index i; that of piece r
/// of all_gather has index r count + i. Cases of one type, op, kind of values and number of ranks share what
/// is computed once. Any thread may make and use them.
class Inputs {
 public:
  explicit Inputs(const Case& one);

  /// Writes the elements of a rank that begin at index `first`.
  void write(int rank, std::size_t first, std::span<std::byte> to) const;

  /// How many of the elements found are not what a rank has put in, bit by bit but for the bits of NaN.
  [[nodiscard]] std::size_t differ_from_input(int rank, std::size_t first,
                                              std::span<const std::byte> found) const;
  /// How many are not the reduction: exact for integers and integer-valued floats (for `avg` of those one
  /// rounding), and for `min` and `max`; else within gamma(n-1) sum|x|, gamma(k) = k u / (1 - k u) and u half
  /// the distance from 1 to the next number of the type (Higham, 2002, Accuracy and Stability of Numerical
  /// Algorithms, 4.2). NaN exactly where a rank has put in one.
  [[nodiscard]] std::size_t differ_from_reduction(std::size_t first, std::span<const std::byte> found) const;

  static constexpr std::size_t period = 1031;

 private:
  struct Tables;
  static std::shared_ptr<const Tables> tables_of(const Case& one);

  Case case_;
  std::shared_ptr<const Tables> tables_;
};

}  // namespace matrix
