#pragma once

#include <cstdint>
#include <vector>

#include "perf/call.hpp"

namespace perf {

/// What ranks put in, and what must come out. Small integers that look random, so that every type's sums are
/// exact in any order; with period 1,031 elements, a prime that no cut of a buffer is a multiple of. The
/// quotients of `avg` in floating point may be off by one rounding. NaN is always wrong.
class TestValues {
 public:
  /// O(1,031 ranks).
  TestValues(ddl::topology::Collective collective, ddl::DataType type, ddl::ReduceOp op, int root, int rank,
             int ranks);

  /// Writes this rank's input, and into what else the call has of output what cannot be right.
  void fill(const Call& call, std::byte* input) const;
  /// How many elements of this rank's output are not right; of the input too, if it is not in place.
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
  std::int64_t least_ = 0;  // of a contribution
  std::int64_t most_ = 0;
  int contributors_;  // other ranks put in zeros
  Table own_;
  Table reduced_;  // before avg divides
};

}  // namespace perf
