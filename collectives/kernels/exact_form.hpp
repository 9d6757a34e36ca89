#pragma once

#include <cstddef>
#include <optional>

#include "ddl/data_type.hpp"

namespace ddl::collectives {

/// A reduction of floats in a form in which its order does not matter: what the ranks exchange are integers.
///
/// For `sum` and `avg` every element has a grid of its own. An element's scale is its exponent; with the
/// greatest of all ranks' scales, every rank rounds its element to a multiple of 2^-B of the power of two
/// above the largest one, B = min(50, 62 - ceil(log2(ranks))), and integers of 64 bits ("limbs") take the
/// sum of these; f64 has a second limb for the next B bits; f16 and bf16 have limbs of 32 bits, with
/// B = 30 - ceil(log2(ranks)), as long as that leaves 18 bits. The sum is rounded once, when it is over. Its
/// error is below ranks 2^-(B+1) of the largest element (f64: ranks 2^-(2B+1)), and one rounding of the
/// result: less than that of adding floats. Sums on a grid that does not depend on the order: Demmel and
/// Nguyen, "Parallel reproducible summation", 2015.
///
/// For `min` and `max` limbs are integers that are ordered as the floats are; -0 is below 0.
///
/// A result that is NaN has its type's one quiet NaN; a sum that is zero is +0. The same bits on all
/// machines, whatever the thread's rounding mode and treatment of denormal numbers.
class ExactForm {
 public:
  /// For floats, and all operations but `prod`.
  ExactForm(DataType type, ReduceOp op, int ranks) noexcept;

  /// Elements of one type, and how many for each of the floats.
  struct Layout {
    DataType type;
    std::size_t each;
    [[nodiscard]] std::size_t bytes() const noexcept { return each * size_of(type); }
  };
  /// Combined by `max`. None for `min` and `max`.
  [[nodiscard]] const std::optional<Layout>& scales() const noexcept { return scales_; }
  [[nodiscard]] const Layout& limbs() const noexcept { return limbs_; }
  /// How limbs are combined.
  [[nodiscard]] ReduceOp op() const noexcept;
  /// B; 0 for `min` and `max`.
  [[nodiscard]] int bits() const noexcept { return bits_; }

  void write_scales(const std::byte* input, std::byte* scales, std::size_t count) const noexcept;
  /// `scales`: the ranks' greatest.
  void encode(const std::byte* input, const std::byte* scales, std::byte* limbs,
              std::size_t count) const noexcept;
  /// `limbs`: all ranks', combined.
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

/// The product, in the order of ranks and in f64, rounded once. Rank r's `count` elements begin r * `stride`
/// elements after `first`. A result that is NaN has its type's one quiet NaN.
void multiply_in_order(DataType type, const std::byte* first, std::size_t stride, int ranks,
                       std::byte* output, std::size_t count) noexcept;

}  // namespace ddl::collectives
