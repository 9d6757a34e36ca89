#pragma once

#include <span>
#include <vector>

#include "topology/planner/phase_profile.hpp"
#include "topology/program/lowering.hpp"

namespace ddl::topology {

/// The groups that run a phase at once. Refers to its arguments.
///
/// All-reduce: only members that earlier dimensions leave active; after scattering over a ragged first
/// dimension, the owners of each segment. Reduce-scatter and all-gather with a ragged first dimension: for
/// each member number, those that handle the pieces of the members with that number. Broadcast and reduce:
/// the groups of members that have the data or pieces of it, which start or end at position `root`.
class PlanGroups {
 public:
  PlanGroups(Collective collective, const Decomposition& decomposition,
             const std::vector<Algorithm>& algorithms, const std::vector<int>& order, int root);

  [[nodiscard]] ProfiledGroups of(const Phase& phase) const;

 private:
  /// The members that take part in later dimensions, one from each group of the first dimension.
  struct Layer {
    double weight;
    std::vector<int> owner_by_size;  // by index into sizes()
    int member = -1;                 // the member number of the pieces; -1: all pieces
  };

  [[nodiscard]] std::span<const int> members_of(int group) const {
    return order_.subspan(as_index(decomposition_->group_begin(group)),
                          as_index(decomposition_->group_size(group)));
  }
  [[nodiscard]] ProfiledGroups first_dimension(bool of_root) const;
  [[nodiscard]] ProfiledGroups later_dimension(int dimension, bool of_root) const;
  [[nodiscard]] std::vector<Layer> layers() const;
  [[nodiscard]] std::vector<Layer> segments() const;
  [[nodiscard]] std::vector<Layer> piece_owners() const;
  double piece_shares(int member, int first, int step, int size, int higher,
                      std::vector<double>& shares) const;
  /// The distinct sizes of groups of the first dimension, ascending.
  [[nodiscard]] std::span<const int> sizes() const { return grid_.sizes(0); }
  [[nodiscard]] int owner(const Layer& layer, int group) const;
  /// The member through which a group of the first dimension gets a broadcast's data, or gives its sum.
  [[nodiscard]] int entry_of(int size) const { return root_.member < size ? root_.member : 0; }

  Collective collective_;
  bool has_root_;
  const Decomposition* decomposition_;
  const std::vector<Algorithm>* algorithms_;
  std::span<const int> order_;
  Grid grid_;
  Place root_;
};

}  // namespace ddl::topology
