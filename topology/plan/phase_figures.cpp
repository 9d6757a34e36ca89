#include "topology/plan/phase_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace ddl::topology {
namespace {

/// Of the groups of the first dimension where they differ.
struct Sizes {
  int smallest;
  int largest;
};

Sizes sizes_of(const Decomposition& decomposition, int dimension) {
  const int largest = decomposition.size(dimension);
  Sizes sizes{largest, largest};
  if (dimension > 0) return sizes;
  for (int group = 0; group < decomposition.groups() && decomposition.ragged(); ++group) {
    sizes.smallest = std::min(sizes.smallest, decomposition.group_size(group));
  }
  return sizes;
}

bool is_scatter(Algorithm algorithm) { return algorithm <= Algorithm::two_shot; }

/// The part of the buffer that a member of the dimension works on, at most.
double share_before(const Plan& plan, int dimension) {
  double share = 1;
  for (int d = 0; d < dimension && !has_root(plan.collective); ++d) {
    if (!is_scatter(plan.dimensions[static_cast<std::size_t>(d)].algorithm)) continue;
    share /= sizes_of(plan.decomposition, d).smallest;
  }
  return share;
}

int rounds_of(Algorithm algorithm, int members) {
  switch (algorithm) {
    case Algorithm::ring:
      return members - 1;
    case Algorithm::halving_doubling:
      return static_cast<int>(prime_factors(members).size());
    case Algorithm::two_shot:
    case Algorithm::one_shot:
      return 1;
    case Algorithm::tree:
    case Algorithm::double_tree:
      return tree_rounds(members);
  }
  return 0;
}

/// In parts of what a member works on.
double share_sent(Algorithm algorithm, PhaseKind kind, int members) {
  const double p = members;
  switch (kind) {
    case PhaseKind::reduce_scatter:
    case PhaseKind::all_gather:
    case PhaseKind::scatter:
      return (p - 1) / p;
    case PhaseKind::all_reduce:
      return p - 1;
    case PhaseKind::gather:
      return 1 / p;
    case PhaseKind::reduce:
      return 1;
    case PhaseKind::broadcast:
      break;
  }
  if (algorithm == Algorithm::one_shot) return p - 1;
  return algorithm == Algorithm::tree ? tree_rounds(members) : 1;
}

}  // namespace

int neighbour_runs(std::span<const int> order, int stride) {
  std::vector<bool> has(order.size(), false);
  for (std::size_t at = 0; at < order.size(); at += static_cast<std::size_t>(stride)) {
    has[static_cast<std::size_t>(order[at])] = true;
  }
  int runs = 0;
  for (std::size_t rank = 0; rank < has.size(); ++rank) {
    if (has[rank] && (rank == 0 || !has[rank - 1])) ++runs;
  }
  return runs;
}

std::vector<int> prime_factors(int size) {
  std::vector<int> factors;
  for (int factor = 2; factor * factor <= size; ++factor) {
    for (; size % factor == 0; size /= factor) factors.push_back(factor);
  }
  if (size > 1) factors.push_back(size);
  return factors;
}

int tree_rounds(int members) {
  int rounds = 0;
  while ((std::int64_t{1} << rounds) < members) ++rounds;
  return rounds;
}

PhaseFigures figures_of(const Plan& plan, const Phase& phase) {
  const Algorithm algorithm = plan.dimensions[static_cast<std::size_t>(phase.dimension)].algorithm;
  const auto [smallest, largest] = sizes_of(plan.decomposition, phase.dimension);
  PhaseFigures figures;
  figures.members =
      smallest == largest ? fmt::format("{}", largest) : fmt::format("{}-{}", smallest, largest);
  figures.rounds = rounds_of(algorithm, largest);
  figures.bytes_per_rank = static_cast<double>(plan.bytes) * share_before(plan, phase.dimension) *
                           share_sent(algorithm, phase.kind, largest);
  return figures;
}

}  // namespace ddl::topology
