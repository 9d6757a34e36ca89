#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/as_index.hpp"

namespace ddl::topology {

/// The grid of workers, innermost dimension first: "4x2x2" is groups of 4, of which 2 make a group of 8.
///
/// Positions in the grid are numbered from 0, with the innermost dimension fastest. Hosts with different
/// numbers of ranks make a ragged first dimension, written with each group's size: "4,3,2,1x2x2" is four
/// groups of 4, 3, 2 and 1 positions in a 2x2 grid of groups. A value type.
class Decomposition {
 public:
  /// One rank: "1".
  Decomposition() : Decomposition({1}, {}) {}
  /// `group_sizes`: the sizes of the first dimension's groups, or one entry for all; `outer`: the sizes of
  /// the other dimensions. A size of 1 is allowed. Throws `invalid_argument` for no groups, sizes below 1, a
  /// number of group sizes that is neither 1 nor the product of `outer`, and more than 2^24 positions.
  Decomposition(std::vector<int> group_sizes, std::vector<int> outer);

  /// Reads "4x8x2" or "4,3,2,1x4" ("4,4x2" reads as "4x2"). Throws `invalid_argument` for other text, and for
  /// another number of positions than `ranks`, naming both.
  static Decomposition parse(std::string_view text, int ranks);

  /// Number of positions.
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// Number of dimensions, at least 1.
  [[nodiscard]] int dimensions() const noexcept { return 1 + static_cast<int>(outer_.size()); }
  /// Whether the groups of the first dimension have different sizes.
  [[nodiscard]] bool ragged() const noexcept { return group_sizes_.size() > 1; }
  /// Number of members of a group of `dimension`, counted from 0; of the largest group if it is ragged.
  /// Throws std::out_of_range for a dimension that does not exist.
  [[nodiscard]] int size(int dimension) const;
  /// Number of groups of the first dimension: the product of the other dimensions' sizes.
  [[nodiscard]] int groups() const noexcept { return groups_; }
  /// Sizes of the groups of the first dimension; one entry if all have the same.
  [[nodiscard]] std::span<const int> group_sizes() const noexcept { return group_sizes_; }
  /// Size of a group of the first dimension; `group` from 0, not checked.
  [[nodiscard]] int group_size(int group) const { return group_sizes_[ragged() ? as_index(group) : 0]; }
  /// Position of the first member of a group of the first dimension; for `group` = groups(), the number of
  /// positions.
  [[nodiscard]] int group_begin(int group) const {
    return ragged() ? group_begins_[as_index(group)] : group * group_sizes_[0];
  }
  /// The group of the first dimension to which a position belongs.
  [[nodiscard]] int group_of(int position) const;
  /// Sizes of the dimensions after the first.
  [[nodiscard]] std::span<const int> outer() const noexcept { return outer_; }

  /// Memberwise equality.
  friend bool operator==(const Decomposition&, const Decomposition&) = default;

 private:
  std::vector<int> group_sizes_;
  std::vector<int> outer_;
  std::vector<int> group_begins_;  // of a ragged first dimension
  int groups_ = 1;
  int ranks_ = 1;
};

/// Text that `Decomposition::parse` reads back, e.g. "4x8x2".
std::string to_string(const Decomposition& decomposition);

}  // namespace ddl::topology
