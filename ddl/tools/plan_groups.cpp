#include "ddl/tools/plan_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "topology/plan/algorithms.hpp"
#include "topology/plan/phases.hpp"

namespace ddl::tools {
namespace {

using topology::Collective;
using topology::Decomposition;
using topology::LinkKind;
using topology::Phase;
using topology::Plan;

std::size_t as_index(std::int64_t i) { return static_cast<std::size_t>(i); }

bool has_tree(const Plan& plan, int dimension) {
  return plan.collective == Collective::all_reduce &&
         topology::traits_of(plan.dimensions[as_index(dimension)].algorithm).leaves_one;
}

/// The coordinates of a place in a grid of the sizes of dimensions [first, dimensions).
std::vector<int> coordinates(const Decomposition& grid, int first, int place) {
  std::vector<int> result;
  for (int d = first; d < grid.dimensions(); ++d) {
    result.push_back(place % grid.size(d));
    place /= grid.size(d);
  }
  return result;
}

/// The members' positions for each of the lines along `dimension` of the grid of dimensions [first, ...),
/// given by `position_at(place in that grid)`.
template <typename PositionAt>
void add_lines(const Plan& plan, int dimension, int first, int root_place, std::size_t most,
               PositionAt&& position_at, std::vector<std::vector<int>>& lines) {
  const Decomposition& grid = plan.decomposition;
  int stride = 1;
  for (int d = first; d < dimension; ++d) stride *= grid.size(d);
  const int size = grid.size(dimension);
  int places = 1;
  for (int d = first; d < grid.dimensions(); ++d) places *= grid.size(d);
  const std::vector<int> root = coordinates(grid, first, root_place);
  for (int high = 0; high < places / (stride * size); ++high) {
    for (int low = 0; low < stride; ++low) {
      if (lines.size() >= most) return;
      const std::vector<int> at = coordinates(grid, first, low);
      bool takes_part = true;
      for (int d = first; d < dimension; ++d) {
        const std::size_t i = as_index(d - first);
        if (has_tree(plan, d) && at[i] != 0) takes_part = false;
        if (has_root(plan.collective) && at[i] != root[i]) takes_part = false;
      }
      if (!takes_part) continue;
      std::vector<int> line;
      for (int i = 0; i < size; ++i) line.push_back(position_at(low + stride * (i + size * high)));
      lines.push_back(std::move(line));
    }
  }
}

/// For each segment between shard boundaries of a ragged first dimension: its owner in every group.
std::set<std::vector<int>> owners_of_segments(const Plan& plan, int root_position) {
  const Decomposition& grid = plan.decomposition;
  std::set<std::vector<int>> result;
  std::vector<int> first(as_index(grid.groups()), 0);
  if (has_root(plan.collective) || has_tree(plan, 0)) {
    if (has_root(plan.collective)) {
      // The member with the root's index, where there is one.
      const int index = root_position - grid.group_begin(grid.group_of(root_position));
      for (int group = 0; group < grid.groups(); ++group) {
        first[as_index(group)] = index < grid.group_size(group) ? index : 0;
      }
    }
    return {first};
  }
  if (has_pieces(plan.collective)) {
    for (int member = 0; member < grid.size(0); ++member) {
      for (int group = 0; group < grid.groups(); ++group) {
        first[as_index(group)] = member % grid.group_size(group);
      }
      result.insert(first);
    }
    return result;
  }
  std::set<std::pair<int, int>> starts;  // of segments, as fractions
  std::set<int> sizes;
  for (int group = 0; group < grid.groups(); ++group) sizes.insert(grid.group_size(group));
  for (const int size : sizes) {
    for (int i = 0; i < size; ++i) starts.emplace(i / std::gcd(i, size), size / std::gcd(i, size));
  }
  for (const auto& [numerator, denominator] : starts) {
    std::vector<int> owners;
    for (int group = 0; group < grid.groups(); ++group) {
      owners.push_back(static_cast<int>(std::int64_t{numerator} * grid.group_size(group) / denominator));
    }
    result.insert(std::move(owners));
  }
  return result;
}

/// Messages that one of the pattern becomes where pieces that lie apart go together, at most.
double ranges_in_message(const Plan& plan, int dimension) {
  if (!has_pieces(plan.collective)) return 1;
  const Decomposition& grid = plan.decomposition;
  int stride = 1;
  for (int d = 0; d <= dimension; ++d) stride *= grid.size(d);
  if (grid.ragged() || plan.chunks > 1) return std::ceil(1.0 * grid.ranks() / stride);
  return topology::neighbour_runs(plan.order, stride);
}

}  // namespace

std::vector<std::vector<int>> groups_of(const Plan& plan, int dimension, int root, std::size_t most) {
  const Decomposition& grid = plan.decomposition;
  const auto root_position = static_cast<int>(std::ranges::find(plan.order, root) - plan.order.begin());
  std::vector<std::vector<int>> groups;
  if (!grid.ragged()) {
    add_lines(
        plan, dimension, 0, root_position, most, [](int place) { return place; }, groups);
  } else if (dimension == 0) {
    for (int group = 0; group < grid.groups() && groups.size() < most; ++group) {
      std::vector<int> members(as_index(grid.group_size(group)));
      std::iota(members.begin(), members.end(), grid.group_begin(group));
      groups.push_back(std::move(members));
    }
  } else {
    for (const std::vector<int>& owners : owners_of_segments(plan, root_position)) {
      add_lines(
          plan, dimension, 1, grid.group_of(root_position), most,
          [&](int group) { return grid.group_begin(group) + owners[as_index(group)]; }, groups);
    }
  }
  for (std::vector<int>& group : groups) {
    for (int& member : group) member = plan.order[as_index(member)];
  }
  return groups;
}

double transfers_of(const Plan& plan) {
  const Decomposition& grid = plan.decomposition;
  const int dimensions = grid.dimensions();
  const bool goes_out = has_root(plan.collective);
  // Ranks that take part in each dimension.
  std::vector<double> active(as_index(dimensions), static_cast<double>(grid.ranks()));
  for (int d = 1; d < dimensions && !goes_out; ++d) {
    active[as_index(d)] = active[as_index(d - 1)] / (has_tree(plan, d - 1) ? grid.size(d - 1) : 1);
  }
  double outer = 1;
  for (int d = dimensions - 1; d > 0 && goes_out; --d) active[as_index(d)] = outer *= grid.size(d);
  // A ragged first dimension cuts each shard into segments, whose messages are separate.
  double pieces = 1;
  if (grid.ragged()) {
    pieces = std::max(1.0, static_cast<double>(owners_of_segments(plan, 0).size()) / grid.size(0));
  }

  double transfers = 0;
  for (const Phase& phase : phases_of(plan)) {
    const double groups = active[as_index(phase.dimension)] / grid.size(phase.dimension);
    const double messages = figures_of(plan, phase).messages;
    transfers +=
        groups * messages * (phase.dimension > 0 ? pieces : 1) * ranges_in_message(plan, phase.dimension);
  }
  return transfers * plan.chunks;
}

std::string wires_of(const topology::Topology& topology, const topology::Placement& placement,
                     const Plan& plan, int dimension, int root) {
  constexpr std::array order = {LinkKind::memory, LinkKind::nvlink, LinkKind::pcie, LinkKind::socket,
                                LinkKind::network};
  constexpr std::size_t most_groups = 16;
  constexpr std::size_t most_members = 64;
  std::size_t farthest = 0;
  double narrowest = 0;
  for (const std::vector<int>& group : groups_of(plan, dimension, root, most_groups)) {
    const std::size_t members = std::min(group.size(), most_members);
    for (std::size_t i = 0; i < members && group.size() > 1; ++i) {
      const int from = topology.devices()[as_index(placement[as_index(group[i])])];
      const int to = topology.devices()[as_index(placement[as_index(group[(i + 1) % group.size()])])];
      for (const topology::Channel channel : topology.route(from, to)) {
        const topology::Link& link = topology.links()[as_index(topology::link_of(channel))];
        farthest = std::max(farthest, as_index(std::ranges::find(order, link.kind) - order.begin()));
        narrowest = narrowest == 0 ? link.bandwidth : std::min(narrowest, link.bandwidth);
      }
    }
  }
  if (narrowest == 0) return "-";
  return fmt::format("{} {:.4g} GB/s", to_string(order[farthest]), narrowest);
}

}  // namespace ddl::tools
