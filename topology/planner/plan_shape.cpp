#include "topology/planner/plan_shape.hpp"

#include <fmt/format.h>

#include "topology/plan/algorithms.hpp"

namespace ddl::topology {
namespace {

bool is_prime(int size) { return prime_factors(size).size() == 1; }

void extend(int rest, std::vector<int>& factors, std::vector<std::vector<int>>& result) {
  if (rest == 1) return result.push_back(factors);
  for (int factor = rest; factor >= 2; --factor) {
    if (rest % factor != 0) continue;
    factors.push_back(factor);
    extend(rest / factor, factors, result);
    factors.pop_back();
  }
}

}  // namespace

std::vector<Algorithm> algorithms_for(Collective collective, Mode mode, int size, bool ragged) {
  if (size == 1) return {Algorithm::ring};
  const bool is_rings = mode == Mode::rings || mode == Mode::nccl || mode == Mode::nccl_per_dimension;
  if (is_rings) return {Algorithm::ring};
  std::vector<Algorithm> result = {Algorithm::ring};
  if (has_root(collective)) {
    if (mode == Mode::mpi && size == 2) return result;
    if (!ragged) result.push_back(Algorithm::two_shot);
    if (mode == Mode::scatter_gather) return {result.back()};
    if (size == 2) return result;
    if (mode == Mode::mpi) return {Algorithm::ring, Algorithm::two_shot, Algorithm::tree};
    result.insert(result.end(), {Algorithm::one_shot, Algorithm::tree});
    if (collective == Collective::broadcast) result.push_back(Algorithm::double_tree);
    return result;
  }
  // In a ragged dimension this is the largest size; smaller groups may have sizes that are not prime.
  if (size > 2 && (ragged || !is_prime(size))) result.push_back(Algorithm::halving_doubling);
  if (size > 2 && mode != Mode::mpi) result.push_back(Algorithm::two_shot);
  if (mode == Mode::scatter_gather || has_pieces(collective)) return result;
  if (!ragged) result.push_back(Algorithm::one_shot);
  result.push_back(Algorithm::tree);
  return result;
}

std::vector<PlanShape> mpi_shapes(Collective collective, int ranks) {
  const Decomposition flat({ranks}, {});
  std::vector<PlanShape> shapes;
  const auto add_flat = [&](Algorithm algorithm) { shapes.push_back({0, flat, {algorithm}}); };
  if (!has_root(collective) || ranks <= longest_chain) add_flat(Algorithm::ring);
  if (ranks < 3) {
    if (ranks == 2 && collective == Collective::all_reduce) add_flat(Algorithm::one_shot);
    return shapes;
  }
  if (has_root(collective)) {
    if (ranks <= longest_chain) add_flat(Algorithm::two_shot);
    add_flat(Algorithm::tree);
    return shapes;
  }
  const auto factors = prime_factors(ranks);
  if (factors.size() > 1) {
    add_flat(Algorithm::halving_doubling);
    if (has_pieces(collective)) return shapes;
    shapes.push_back({0, grid_of(factors), std::vector(factors.size(), Algorithm::one_shot)});
  }
  if (!has_pieces(collective)) add_flat(Algorithm::tree);
  return shapes;
}

std::string steps_of(const PlanShape& shape, int chunks) {
  std::string key = fmt::format("{} {}", shape.order, chunks);
  if (shape.decomposition.ragged()) key += to_string(shape.decomposition);
  std::vector<SizedAlgorithm> steps;
  for (int d = 0; d < shape.decomposition.dimensions(); ++d) {
    const Algorithm algorithm = shape.algorithms[as_index(d)];
    const int size = shape.decomposition.size(d);
    if (d == 0 && shape.decomposition.ragged()) {
      steps.push_back({size, algorithm});
    } else if (size > 1) {
      add_same_steps(algorithm, size, steps);
    }
  }
  for (const auto& [size, algorithm] : steps) key += fmt::format(" {}{}", size, to_string(algorithm));
  return key;
}

Decomposition grid_of(const std::vector<int>& sizes) {
  if (sizes.empty()) return {};
  return {{sizes[0]}, {sizes.begin() + 1, sizes.end()}};
}

bool is_aligned(const Decomposition& decomposition, int size) {
  int inside = 1;
  for (int d = 0; d < decomposition.dimensions() && inside < size; ++d) inside *= decomposition.size(d);
  return inside == size;
}

std::vector<std::vector<int>> ordered_factorisations(int n) {
  std::vector<std::vector<int>> result;
  std::vector<int> factors;
  extend(n, factors, result);
  return result;
}

}  // namespace ddl::topology
