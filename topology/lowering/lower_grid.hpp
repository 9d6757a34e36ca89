#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ddl/topology/decomposition.hpp"

namespace ddl::topology {

/// The ranks that work together in one dimension, by index, as one of them sees it.
struct Group {
  int size;
  int mine;                         ///< This rank's index.
  std::function<int(int)> rank_at;  ///< The rank at an index of [0, size).

  /// The rank `distance` members after this one, around the group's end.
  [[nodiscard]] int after(int distance) const { return rank_at(index_after(distance)); }
  [[nodiscard]] int index_after(int distance) const { return wrap(mine + distance, size); }

  /// Brings an index that is off by any multiple of `size` into [0, size).
  static int wrap(int index, int size) { return ((index % size) + size) % size; }
};

/// Where a rank is in the grid.
struct Place {
  int group;               ///< Of the first dimension.
  int member;              ///< Index in it.
  std::vector<int> outer;  ///< Coordinates in the second dimension on.
};

/// Ranks by their coordinates. Refers to its arguments.
class Grid {
 public:
  Grid(const Decomposition& decomposition, std::span<const int> order);

  [[nodiscard]] Place place(int position) const;
  [[nodiscard]] int group_size(int group) const { return decomposition_->group_size(group); }
  /// The sizes that groups of a dimension have, each once.
  [[nodiscard]] std::span<const int> sizes(int dimension) const;
  [[nodiscard]] bool ragged() const { return decomposition_->ragged(); }

  /// The group of the first dimension that a place is in, its first member at index 0.
  [[nodiscard]] Group first_dimension(const Place& place) const;
  /// The group of a later dimension that a place is in; `member_in(g)` takes part for the group g of the
  /// first dimension. Refers to `member_in` as long as the result lives.
  [[nodiscard]] Group later_dimension(const Place& place, int dimension,
                                      const std::function<int(int)>& member_in) const;
  /// The same group, counted from the member at `index` on.
  static Group counted_from(Group group, int index);

 private:
  const Decomposition* decomposition_;
  std::span<const int> order_;
  std::vector<int> group_sizes_;
  std::vector<int> strides_;  // in groups of the first dimension, of the second dimension on
};

}  // namespace ddl::topology
