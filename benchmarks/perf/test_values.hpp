#pragma once

#include <cstdint>
#include <vector>

#include "perf/call.hpp"

namespace perf {

/// The ranks' inputs and expected results: small pseudorandom integers, so that sums of every type are exact
/// in any order, with a period of 1,031 elements, a prime that divides no cut of a buffer. `avg` in floating
/// point may be off by one rounding. NaN is always wrong.
class TestValues {
 public:
  /// Takes time proportional to 1,031 x `ranks`.
  TestValues(ddl::topology::Collective collective, ddl::DataType type, ddl::ReduceOp op, int root, int rank,
             int ranks);

  /// Writes this rank's input, and wrong values to the rest of the output.
  void fill(const Call& call, std::byte* input) const;
  /// The number of wrong elements of this rank's output and, out of place, of changed elements of its input.
  [[nodiscard]] std::int64_t count_wrong(const Call& call) const;

  static constexpr std::size_t period = 1031;

 private:
  using Table = std::vector<std::int64_t>;
  [[nodiscard]] std::int64_t contribution(int rank, std::size_t index) const noexcept;
  [[nodiscard]] Table contributions(int rank) const;
  [[nodiscard]] Table reductions() const;
  [[nodiscard]] std::size_t first_of_input(const Call& call) const noexcept;

  ddl::topology::Collective collective_;
  ddl::DataType type_;
  ddl::ReduceOp op_;
  int root_;
  int rank_;
  int ranks_;
  std::int64_t least_ = 0;  // smallest value of a contribution
  std::int64_t most_ = 0;
  int contributors_;  // other ranks contribute zeros
  Table own_;
  Table reduced_;  // before the division of avg
};

}  // namespace perf
