#include "topology/planner/plan_shape.hpp"

#include "topology/plan/phase_figures.hpp"

namespace ddl::topology {
namespace {

bool is_prime(int size) { return prime_factors(size).size() == 1; }

void extend(int rest, std::vector<int>& factors, std::vector<std::vector<int>>& result) {
  if (rest == 1) {
    result.push_back(factors);
    return;
  }
  for (int factor = rest; factor >= 2; --factor) {
    if (rest % factor != 0) continue;
    factors.push_back(factor);
    extend(rest / factor, factors, result);
    factors.pop_back();
  }
}

}  // namespace

std::vector<Algorithm> algorithms_for(const Family& family, int size, bool ragged) {
  if (size == 1) return {Algorithm::ring};
  const bool is_rings =
      family.mode == Mode::rings || family.mode == Mode::nccl || family.mode == Mode::nccl_per_dimension;
  if (is_rings) return {Algorithm::ring};
  std::vector<Algorithm> result = {Algorithm::ring};
  if (has_root(family.collective)) {
    if (size == 2) return result;
    result.push_back(Algorithm::two_shot);
    if (family.mode == Mode::scatter_gather) return {Algorithm::two_shot};
    if (family.mode == Mode::mpi) return {Algorithm::ring, Algorithm::two_shot, Algorithm::tree};
    result.insert(result.end(), {Algorithm::one_shot, Algorithm::tree});
    if (family.collective == Collective::broadcast) result.push_back(Algorithm::double_tree);
    return result;
  }
  // With groups of different sizes the largest may be of two members and others of one.
  if (size > 2 && (ragged || !is_prime(size))) result.push_back(Algorithm::halving_doubling);
  if (size > 2 && family.mode != Mode::mpi) result.push_back(Algorithm::two_shot);
  if (family.mode == Mode::scatter_gather || has_pieces(family.collective)) return result;
  if (!ragged) result.push_back(Algorithm::one_shot);
  result.push_back(Algorithm::tree);
  return result;
}

std::vector<std::vector<int>> ordered_factorisations(int n) {
  std::vector<std::vector<int>> result;
  std::vector<int> factors;
  extend(n, factors, result);
  return result;
}

}  // namespace ddl::topology
