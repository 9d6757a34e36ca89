#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ddl/communicator.hpp"
#include "ddl/gradients/exact_squares.hpp"

namespace ddl {

/// The sum of squares of values that lie on different ranks. Each rank adds its own; every value belongs to
/// one rank. Not thread-safe.
class GradientNorm {
 public:
  /// `exact`: the same bits in whatever parts and order, and on whatever ranks, values are added, for some 2
  /// ns a value; else one pass at the speed of memory, and bits that depend on the parts.
  explicit GradientNorm(bool exact) : exact_(exact) {}

  void clear() noexcept;
  void add(std::span<const float> values) noexcept;
  /// Adds them as they are; then multiplies them with `factor`, unless it is 1. One pass over memory.
  void add_and_scale(std::span<float> values, double factor) noexcept;
  /// The square root of the sum over all ranks: the same on each; not finite where a value is not.
  /// Adds up `counts` over all ranks on the way. Collective.
  [[nodiscard]] double over_all(Communicator& communicator, std::span<double> counts = {});

 private:
  // Squares that begin in the same digit are added up as whole numbers, each below 2^80.
  __extension__ using Whole = unsigned __int128;

  void add_exactly(float value) noexcept;
  [[nodiscard]] double exact_over_all(Communicator& communicator) const;

  bool exact_;
  double sum_ = 0;
  std::vector<double> sums_;  // working memory of over_all
  std::uint64_t not_finite_ = 0;
  std::array<Whole, ExactSquares::bins> bins_{};
};

}  // namespace ddl
