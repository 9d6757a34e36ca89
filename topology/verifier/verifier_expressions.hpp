#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "topology/program/streams.hpp"

namespace ddl::topology::verification {

/// What is known of the content of memory: a rank's own data, or two expressions combined in this order, and
/// whether the result was rounded. Equal ones have one number. A few ten bytes for each that differs.
class Expressions {
 public:
  using Id = std::uint32_t;
  static constexpr Id nothing = UINT32_MAX;

  /// Expression r is rank r's own data.
  explicit Expressions(int ranks);

  /// `target op source`, first made by `step`.
  Id combine(Id target, Id source, StepId step, bool is_rounded);

  [[nodiscard]] bool is_own_data(Id id) const noexcept { return id < ranks_; }
  /// Holds each rank's data exactly once. O(ranks) when first asked of an expression.
  bool complete(Id id);
  /// Holds each rank's data at least once. O(expressions).
  [[nodiscard]] bool has_all(Id id) const;
  /// What an expression that is not complete holds: "rank 1's contribution 2 times (...), none of ranks 0,
  /// 3".
  [[nodiscard]] std::string describe(Id id, const StepNumbers& steps) const;

 private:
  struct Expression {
    Id target = nothing;
    Id source = nothing;
    std::uint32_t leaves = 1;  // with multiplicity, at most UINT32_MAX
    StepId step = no_step;
    bool is_rounded = true;
    bool complete = false;
  };

  void grow();
  [[nodiscard]] std::size_t slot_of(Id target, Id source, bool is_rounded) const;
  /// An expression and all that it is made of, each once.
  [[nodiscard]] std::vector<Id> parts_of(Id id) const;
  [[nodiscard]] StepId first_doubling(Id id) const;

  std::uint32_t ranks_;
  std::vector<Expression> all_;
  std::vector<Id> slots_;  // a hash table with open addresses, a power of two long
};

}  // namespace ddl::topology::verification
