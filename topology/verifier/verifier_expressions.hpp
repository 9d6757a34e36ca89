#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topology/program/streams.hpp"

namespace ddl::topology::verification {

/// What is known of the content of memory: a rank's own data, two expressions combined in this order, and
/// whether the result was rounded, or one that was rounded to the wire's type. Equal ones have one number. A
/// few ten bytes for each that differs.
class Expressions {
 public:
  using Id = std::uint32_t;
  static constexpr Id nothing = UINT32_MAX;

  /// Expression r is rank r's own data.
  explicit Expressions(int ranks);

  /// `target op source`, first made by `step`.
  Id combine(Id target, Id source, StepId step, bool is_rounded);
  /// `id` as the wire's type has it.
  Id to_wire(Id id, StepId step) { return is_narrow(id) ? id : add({id, nothing}, step, true); }
  [[nodiscard]] bool is_narrow(Id id) const noexcept {
    return !is_own_data(id) && all_[id].operands[1] == nothing;
  }

  [[nodiscard]] bool is_own_data(Id id) const noexcept { return id < ranks_; }
  /// Holds each rank's data exactly once. O(ranks) when first asked of an expression.
  bool complete(Id id);
  /// Holds each rank's data at least once. O(expressions).
  [[nodiscard]] bool has_all(Id id) const;
  /// What an expression that is not complete holds: "rank 1's contribution 2 times (...), none of ranks 0,
  /// 3".
  [[nodiscard]] std::string describe(Id id, const StepNumbers& steps) const;

 private:
  using Operands = std::array<Id, 2>;  // of which the second may be nothing
  struct Expression {
    Operands operands = {nothing, nothing};
    std::uint32_t leaves = 1;  // with multiplicity, at most UINT32_MAX
    StepId step = no_step;
    bool is_rounded = true;
    bool complete = false;
  };

  void grow();
  Id add(const Operands& operands, StepId step, bool is_rounded);
  [[nodiscard]] std::span<const Id> operands_of(Id id) const noexcept {
    return std::span(all_[id].operands).first(is_narrow(id) ? 1 : 2);
  }
  [[nodiscard]] std::size_t slot_of(const Operands& operands, bool is_rounded) const;
  /// An expression and all that it is made of, each once.
  [[nodiscard]] std::vector<Id> parts_of(Id id) const;
  [[nodiscard]] StepId first_doubling(Id id) const;

  std::uint32_t ranks_;
  std::vector<Expression> all_;
  std::vector<Id> slots_;  // a hash table with open addresses, a power of two long
};

}  // namespace ddl::topology::verification
