#pragma once

#include <cstddef>
#include <optional>

#include "ddl/data_type.hpp"

namespace ddl::collectives {

/// A reduction of floats in a form whose order does not matter: the ranks exchange integers.
///
/// For `sum` and `avg` every element has a grid of its own. An element's scale is its exponent. Given the
/// maximum scale over all ranks, each rank rounds its element to a multiple of 2^-B times the power of two
/// above the largest element, B = min(50, 62 - ceil(log2(ranks))), and the ranks sum these multiples as
/// 64-bit integers ("limbs"). f64 has a second limb for the next B bits. f16 and bf16 have 32-bit limbs, with
/// B = 30 - ceil(log2(ranks)), as long as that leaves 18 bits. The sum is rounded once, at the end. Its error
/// is below ranks * 2^-(B+1) times the largest element (f64: ranks * 2^-(2B+1)), plus one rounding of the
/// result: less than that of adding floats. Source of sums on a grid that does not depend on the order:
/// Demmel and Nguyen, "Parallel reproducible summation", 2015.
///
/// For `min` and `max` limbs are integers in the order of the floats; -0 is below 0.
///
/// A NaN result is the type's one quiet NaN; a zero sum is +0. The bits are the same on all machines,
/// whatever the thread's rounding mode and treatment of denormal numbers.
class ExactForm {
 public:
  /// For float types, and all operations except `prod`.
  ExactForm(DataType type, ReduceOp op, int ranks) noexcept;

  /// The integers that stand for a float: their type, and how many there are for each float.
  struct Layout {
    DataType type;
    std::size_t each;
    [[nodiscard]] std::size_t bytes() const noexcept { return each * size_of(type); }
  };
  /// Ranks combine scales by `max`. None for `min` and `max`.
  [[nodiscard]] const std::optional<Layout>& scales() const noexcept { return scales_; }
  [[nodiscard]] const Layout& limbs() const noexcept { return limbs_; }
  /// The operation by which ranks combine limbs.
  [[nodiscard]] ReduceOp op() const noexcept;
  /// B in the description above; 0 for `min` and `max`.
  [[nodiscard]] int bits() const noexcept { return bits_; }

  void write_scales(const std::byte* input, std::byte* scales, std::size_t count) const noexcept;
  /// `scales`: the maxima over all ranks.
  void encode(const std::byte* input, const std::byte* scales, std::byte* limbs,
              std::size_t count) const noexcept;
  /// `limbs`: combined over all ranks.
  void decode(const std::byte* scales, const std::byte* limbs, std::byte* output,
              std::size_t count) const noexcept;

 private:
  DataType type_;
  ReduceOp op_;
  int ranks_;
  std::optional<Layout> scales_;
  Layout limbs_;
  int bits_ = 0;
};

/// Multiplies in rank order and in f64, and rounds once. The `count` elements of rank r begin r * `stride`
/// elements after `first`. A NaN result is the type's one quiet NaN.
void multiply_in_order(DataType type, const std::byte* first, std::size_t stride, int ranks,
                       std::byte* output, std::size_t count) noexcept;

}  // namespace ddl::collectives
