#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/as_index.hpp"

namespace ddl::topology {

/// The grid of workers, innermost dimension first: "4x2x2" is groups of 4, 2 of which make a group of 8.
///
/// Positions in the grid count 0, 1, ... with the innermost dimension fastest. Hosts that hold different
/// numbers of ranks make a ragged first dimension, written with each group's size: "4,3,2,1x2x2" is four
/// groups of 4, 3, 2 and 1 positions in a 2x2 grid of groups. A value.
class Decomposition {
 public:
  /// One rank: "1".
  Decomposition() : Decomposition({1}, {}) {}
  /// Sizes of the groups of the first dimension (one entry if all are alike) and of the other dimensions.
  /// A dimension of size 1 is allowed. Throws `invalid_argument`: no groups, sizes below 1, a number of
  /// groups that is neither 1 nor the product of `outer`, a product above 2^24.
  Decomposition(std::vector<int> group_sizes, std::vector<int> outer);

  /// Reads "4x8x2" or "4,3,2,1x4" ("4,4x2" reads as "4x2"). Throws `invalid_argument` for anything else, and
  /// if it is not `ranks` positions, naming both: "4x8x2 has 64 positions, but there are 60 ranks; ...".
  static Decomposition parse(std::string_view text, int ranks);

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] int dimensions() const noexcept { return 1 + static_cast<int>(outer_.size()); }
  [[nodiscard]] bool ragged() const noexcept { return group_sizes_.size() > 1; }
  /// Members of a group of dimension `dimension`; of the largest group where it is ragged.
  [[nodiscard]] int size(int dimension) const;
  /// Number of groups of the first dimension: the product of the other sizes.
  [[nodiscard]] int groups() const noexcept { return groups_; }
  /// Sizes of the groups of the first dimension, one entry if all are alike.
  [[nodiscard]] std::span<const int> group_sizes() const noexcept { return group_sizes_; }
  [[nodiscard]] int group_size(int group) const { return group_sizes_[ragged() ? as_index(group) : 0]; }
  /// Position of the first member of a group of the first dimension; `group` may be groups().
  [[nodiscard]] int group_begin(int group) const {
    return ragged() ? group_begins_[as_index(group)] : group * group_sizes_[0];
  }
  /// The group of the first dimension that holds a position.
  [[nodiscard]] int group_of(int position) const;
  /// Sizes of the second dimension on.
  [[nodiscard]] std::span<const int> outer() const noexcept { return outer_; }

  friend bool operator==(const Decomposition&, const Decomposition&) = default;

 private:
  std::vector<int> group_sizes_;
  std::vector<int> outer_;
  std::vector<int> group_begins_;  // of a ragged first dimension
  int groups_ = 1;
  int ranks_ = 1;
};

/// As `parse` reads it.
std::string to_string(const Decomposition& decomposition);

}  // namespace ddl::topology
