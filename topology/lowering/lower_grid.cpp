#include "topology/lowering/lower_grid.hpp"

#include <algorithm>
#include <utility>

namespace ddl::topology {

Grid::Grid(const Decomposition& decomposition, std::span<const int> order)
    : decomposition_(&decomposition), order_(order) {
  const int kinds = decomposition.ragged() ? decomposition.groups() : 1;
  for (int group = 0; group < kinds; ++group) group_sizes_.push_back(decomposition.group_size(group));
  std::sort(group_sizes_.begin(), group_sizes_.end());
  group_sizes_.erase(std::unique(group_sizes_.begin(), group_sizes_.end()), group_sizes_.end());
  int stride = 1;
  for (const int size : decomposition.outer()) {
    strides_.push_back(stride);
    stride *= size;
  }
}

std::span<const int> Grid::sizes(int dimension) const {
  if (dimension == 0) return group_sizes_;
  return decomposition_->outer().subspan(static_cast<std::size_t>(dimension - 1), 1);
}

Place Grid::place(int position) const {
  Place place;
  place.group = decomposition_->group_of(position);
  place.member = position - decomposition_->group_begin(place.group);
  int rest = place.group;
  for (const int size : decomposition_->outer()) {
    place.outer.push_back(rest % size);
    rest /= size;
  }
  return place;
}

Group Grid::first_dimension(const Place& place) const {
  const int* members = order_.data() + decomposition_->group_begin(place.group);
  return {group_size(place.group), place.member, [members](int index) { return members[index]; }};
}

Group Grid::later_dimension(const Place& place, int dimension,
                            const std::function<int(int)>& member_in) const {
  const auto outer = static_cast<std::size_t>(dimension - 1);
  const int stride = strides_[outer];
  const int first = place.group - place.outer[outer] * stride;
  return {decomposition_->outer()[outer], place.outer[outer], [this, &member_in, first, stride](int index) {
            const int group = first + index * stride;
            return order_[static_cast<std::size_t>(decomposition_->group_begin(group) + member_in(group))];
          }};
}

Group Grid::counted_from(Group group, int index) {
  const int size = group.size;
  return {size, Group::wrap(group.mine - index, size),
          [size, index, at = std::move(group.rank_at)](int i) { return at((i + index) % size); }};
}

}  // namespace ddl::topology
