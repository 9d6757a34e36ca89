
#include <fmt/format.h>

#include <algorithm>

#include "topology/plan/algorithms.hpp"

namespace ddl::topology {
namespace {

/// The smallest and largest group of a dimension. They differ only in a ragged first dimension.
struct Sizes {
  int smallest;
  int largest;
};

Sizes sizes_of(const Decomposition& decomposition, int dimension) {
  const int largest = decomposition.size(dimension);
  return {dimension > 0 ? largest : std::ranges::min(decomposition.group_sizes()), largest};
}

/// The part of the buffer that a member works on in the dimension; the largest one if members differ.
double share_before(const Plan& plan, int dimension) {
  double share = 1;
  for (int d = 0; d < dimension; ++d) {
    if (!scatters(plan.collective, plan.dimensions[as_index(d)].algorithm)) continue;
    share /= sizes_of(plan.decomposition, d).smallest;
  }
  return share;
}

}  // namespace

std::vector<Phase> phases_of(const Plan& plan) {
  std::vector<Phase> phases;
  const int dimensions = plan.decomposition.dimensions();
  std::vector<DimensionPhases> of_dimension;
  for (const PlanDimension& dimension : plan.dimensions) {
    of_dimension.push_back(dimension_phases(plan.collective, dimension.algorithm));
  }
  const auto add = [&](const std::vector<PhaseKind>& kinds, int dimension) {
    if (plan.decomposition.size(dimension) < 2) return;
    for (const PhaseKind kind : kinds) phases.push_back({kind, dimension});
  };
  for (int d = 0; d < dimensions; ++d) add(of_dimension[as_index(d)].up, d);
  for (int d = dimensions - 1; d >= 0; --d) add(of_dimension[as_index(d)].down, d);
  return phases;
}

int neighbour_runs(std::span<const int> order, int stride) {
  std::vector<bool> has(order.size(), false);
  for (std::size_t at = 0; at < order.size(); at += as_index(stride)) has[as_index(order[at])] = true;
  int runs = 0;
  for (std::size_t rank = 0; rank < has.size(); ++rank) {
    if (has[rank] && (rank == 0 || !has[rank - 1])) ++runs;
  }
  return runs;
}

PhaseFigures figures_of(const Plan& plan, const Phase& phase) {
  const auto [smallest, largest] = sizes_of(plan.decomposition, phase.dimension);
  const PlanDimension& dimension = plan.dimensions[as_index(phase.dimension)];
  const GroupPattern pattern(plan.collective, dimension.algorithm, phase.kind, largest,
                             largest < plan.decomposition.ranks());
  PhaseFigures figures;
  figures.members =
      smallest == largest ? fmt::format("{}", largest) : fmt::format("{}-{}", smallest, largest);
  figures.rounds = pattern.rounds();
  std::vector<int> pieces(as_index(largest), 0);  // by member
  std::vector<Message> sent;
  const int repeat = pattern.is_repeated() ? pattern.rounds() : 1;
  for (int round = 0; round < pattern.rounds(); round += repeat) {
    const auto [first, end, step] = pattern.senders(round);
    for (int member = first; member < end; member += step) {
      pattern.sends(round, member, sent);
      for (const Message& message : sent) pieces[as_index(member)] += repeat * (message.last - message.first);
    }
  }
  const double part_sent = static_cast<double>(size_of(dimension.wire.value_or(plan.type))) /
                           static_cast<double>(size_of(plan.type));
  figures.bytes_per_rank = static_cast<double>(plan.bytes) * share_before(plan, phase.dimension) * part_sent *
                           *std::ranges::max_element(pieces) / pattern.pieces();
  return figures;
}

}  // namespace ddl::topology
