#pragma once

#include <span>
#include <vector>

#include "topology/planner/phase_profile.hpp"
#include "topology/program/lowering.hpp"

namespace ddl::topology {

/// The groups that run a phase at once. Refers to its arguments.
///
/// All-reduce: only members that the dimensions before left active; with a scattered ragged first dimension,
/// the owners of each segment. Reduce-scatter and all-gather: with a ragged first dimension, those that take
/// care of the pieces of members with one number. Broadcast and reduce: those that have the data, and their
/// groups, when it starts or ends at the position `root`.
class PlanGroups {
 public:
  PlanGroups(Collective collective, const Decomposition& decomposition,
             const std::vector<Algorithm>& algorithms, const std::vector<int>& order, int root);

  void for_each(int dimension, const GroupVisitor& visit) const;
  /// Every group of a dimension, whatever is active in it; of a ragged first dimension, those of its first
  /// members.
  void for_each_whole(int dimension, const GroupVisitor& visit) const;

 private:
  /// Who takes part in dimensions after the first, in each group of that.
  struct Layer {
    double weight;
    std::vector<int> owner_by_size;  // by index into the sizes of the first dimension
    int member = -1;                 // whose pieces these are
  };

  [[nodiscard]] std::span<const int> members_of(int group) const {
    return order_.subspan(as_index(decomposition_->group_begin(group)),
                          as_index(decomposition_->group_size(group)));
  }
  void first_dimension(const GroupVisitor& visit) const;
  void later_dimension(int dimension, const std::vector<Layer>& layers, bool whole,
                       const GroupVisitor& visit) const;
  [[nodiscard]] std::vector<Layer> layers() const;
  [[nodiscard]] std::vector<Layer> segments() const;
  [[nodiscard]] std::vector<Layer> piece_owners() const;
  double piece_shares(int member, int first, int step, int size, int higher,
                      std::vector<double>& shares) const;
  /// Of groups of the first dimension, each once, ascending.
  [[nodiscard]] std::span<const int> sizes() const { return grid_.sizes(0); }
  [[nodiscard]] int owner(const Layer& layer, int group) const;
  /// The member by which a group of the first dimension gets the data of a broadcast, or gives its sum.
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
