#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ddl/communicator.hpp"

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
  // Squares of floats are whole multiples of 2^-298, below 2^256. Those with an exponent in the same
  // `bin_bits` are added up as whole numbers, each below 2^(48 + bin_bits).
  static constexpr int bin_bits = 32;
  static constexpr int lowest_exponent = -298;
  static constexpr std::size_t bins = 18;
  __extension__ using Whole = unsigned __int128;

  void add_exactly(float value) noexcept;
  [[nodiscard]] double exact_over_all(Communicator& communicator) const;

  bool exact_;
  double sum_ = 0;
  std::vector<double> sums_;  // working memory of over_all
  std::int64_t not_finite_ = 0;
  std::array<Whole, bins> bins_{};
};

}  // namespace ddl
