#include "topology/planner/plan_groups.hpp"

#include <cmath>
#include <numeric>

namespace ddl::topology {

PlanGroups::PlanGroups(Collective collective, const Decomposition& decomposition,
                       const std::vector<Algorithm>& algorithms, const std::vector<int>& order, int root)
    : collective_(collective),
      has_root_(has_root(collective)),
      decomposition_(&decomposition),
      algorithms_(&algorithms),
      order_(order),
      grid_(decomposition, order),
      root_(grid_.place(root)) {}

/// The member of a group of the first dimension that takes part.
int PlanGroups::owner(const Layer& layer, int group) const {
  const auto size = std::ranges::lower_bound(sizes(), decomposition_->group_size(group));
  return layer.owner_by_size[as_index(size - sizes().begin())];
}

ProfiledGroups PlanGroups::of(const Phase& phase) const {
  const bool of_root = phase.kind == PhaseKind::scatter || phase.kind == PhaseKind::gather;
  return phase.dimension == 0 ? first_dimension(of_root) : later_dimension(phase.dimension, of_root);
}

ProfiledGroups PlanGroups::first_dimension(bool of_root) const {
  ProfiledGroups result;
  std::vector<int> ranks;
  std::vector<double> shares;
  for (int group = 0; group < decomposition_->groups(); ++group) {
    if (of_root && group != root_.group) continue;
    const int size = decomposition_->group_size(group);
    const auto members = members_of(group);
    if (decomposition_->ragged() && has_pieces(collective_)) {
      shares.assign(as_index(size), 0);
      for (int other = 0; other < decomposition_->groups(); ++other) {
        for (int member = 0; member < decomposition_->group_size(other); ++member) {
          shares[as_index(member % size)] += 1.0 / decomposition_->ranks();
        }
      }
      result.add(members, 1, shares);
      continue;
    }
    const int entry = has_root_ ? entry_of(size) : 0;
    if (entry == 0) {
      result.add(members, 1);
      continue;
    }
    ranks.assign(members.begin(), members.end());
    std::rotate(ranks.begin(), ranks.begin() + entry, ranks.end());
    result.add(ranks, 1);
  }
  return result;
}

std::vector<PlanGroups::Layer> PlanGroups::layers() const {
  const Algorithm first = algorithms_->front();
  if (has_root_ && !scatters(collective_, first)) {
    Layer entry{1, {}};
    for (const int size : sizes()) entry.owner_by_size.push_back(entry_of(size));
    return {entry};
  }
  if (traits_of(first).leaves_one) return {{1, std::vector<int>(sizes().size(), 0)}};
  if (decomposition_->ragged() && collective_ != Collective::all_reduce) return piece_owners();
  if (decomposition_->ragged() && traits_of(first).scatters) return segments();
  std::vector<Layer> result;
  for (int member = 0; member < sizes()[0]; ++member) result.push_back({1, {member}});
  return result;
}

std::vector<PlanGroups::Layer> PlanGroups::segments() const {
  // Boundaries in units of the least common multiple would overflow; fractions within 1e-12 count as equal.
  std::vector<double> cuts;
  for (const int size : sizes()) {
    for (int i = 0; i < size; ++i) cuts.push_back(static_cast<double>(i) / size);
  }
  cuts.push_back(1);
  std::ranges::sort(cuts);
  std::vector<Layer> result;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (cuts[i + 1] - cuts[i] < 1e-12) continue;
    Layer layer{cuts[i + 1] - cuts[i], {}};
    const double middle = (cuts[i] + cuts[i + 1]) / 2;
    for (const int size : sizes()) {
      layer.owner_by_size.push_back(
          member_of_piece(algorithms_->front(), size, static_cast<int>(std::floor(middle * size))));
    }
    result.push_back(std::move(layer));
  }
  return result;
}

std::vector<PlanGroups::Layer> PlanGroups::piece_owners() const {
  std::vector<Layer> result;
  for (int member = 0; member < sizes().back(); ++member) {
    Layer layer{1, {}, member};
    for (const int size : sizes()) layer.owner_by_size.push_back(member % size);
    result.push_back(std::move(layer));
  }
  return result;
}

/// Sets `shares` to the parts that a line's members end with, of the pieces whose ranks have number `member`.
/// The line has `size` groups from `first` on, `step` apart; `higher` is the distance to the next such line.
/// Returns the number of those pieces.
double PlanGroups::piece_shares(int member, int first, int step, int size, int higher,
                                std::vector<double>& shares) const {
  shares.assign(as_index(size), 0);
  for (int i = 0; i < size; ++i) {
    for (int group = first % higher + i * step; group < decomposition_->groups(); group += higher) {
      if (member < decomposition_->group_size(group)) ++shares[as_index(i)];
    }
  }
  const double pieces = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= std::max(pieces, 1.0);
  return pieces;
}

ProfiledGroups PlanGroups::later_dimension(int dimension, bool of_root) const {
  const std::vector<Layer> members = layers();
  const auto outer = decomposition_->outer();
  const auto here = as_index(dimension - 1);
  int stride = 1;
  for (std::size_t i = 0; i < here; ++i) stride *= outer[i];
  const int size = outer[here];
  const int entry = has_root_ ? root_.outer[here] : 0;

  /// Whether groups with the coordinates `inner` in earlier dimensions take part.
  const auto takes_part = [&](int inner) {
    for (std::size_t i = 0; i < here; ++i) {
      const int coordinate = inner % outer[i];
      inner /= outer[i];
      const Algorithm algorithm = (*algorithms_)[i + 1];
      if (has_root_ && !scatters(collective_, algorithm) && coordinate != root_.outer[i]) return false;
      if (!has_root_ && traits_of(algorithm).leaves_one && coordinate != 0) return false;
    }
    return true;
  };
  ProfiledGroups result;
  std::vector<int> ranks(as_index(size));
  std::vector<double> shares;
  for (int inner = 0; inner < stride; ++inner) {
    if (!takes_part(inner)) continue;
    for (int first = inner; first < decomposition_->groups(); first += stride * size) {
      if (of_root && first / (stride * size) != root_.group / (stride * size)) continue;
      for (const Layer& layer : members) {
        for (int i = 0; i < size; ++i) {
          const int group = first + (i + entry) % size * stride;
          ranks[as_index(i)] = grid_.rank_at(group, owner(layer, group));
        }
        if (layer.member < 0) {
          result.add(ranks, layer.weight);
          continue;
        }
        // The phase's share assumes dimensions that cut equally; the weight corrects it.
        const double pieces = piece_shares(layer.member, first, stride, size, stride * size, shares);
        if (pieces > 0) result.add(ranks, pieces * stride / decomposition_->ranks(), shares);
      }
    }
  }
  return result;
}

}  // namespace ddl::topology
