#include "topology/pattern.hpp"

#include <algorithm>
#include <bit>
#include <map>

#include "ddl/error.hpp"
#include "topology/phase_figures.hpp"

namespace ddl::topology {
namespace {

using Rounds = std::vector<PatternRound>;

Rounds ring(int size, bool reduces) {
  PatternRound round{size - 1, 1.0 / size, reduces ? 1.0 / size : 0, {}};
  for (int i = 0; i < size; ++i) round.edges.push_back({i, (i + 1) % size});
  return {round};
}

Rounds chain(int size) {
  Rounds rounds;
  for (int i = 0; i + 1 < size; ++i) rounds.push_back({1, 1, 0, {{i, i + 1}}});
  return rounds;
}

/// Every member of groups of `factor`, `stride` apart, to each other one.
void add_exchange(std::vector<PatternEdge>& edges, int size, int factor, int stride) {
  for (int distance = 1; distance < factor; ++distance) {
    for (int i = 0; i < size; ++i) {
      const int digit = i / stride % factor;
      edges.push_back({i, i + ((digit + distance) % factor - digit) * stride});
    }
  }
}

Rounds halving_doubling(int size, bool reduces) {
  Rounds rounds;
  int stride = 1;
  double share = 1;
  for (const int factor : prime_factors(size)) {
    share /= factor;
    PatternRound round{1, share, reduces ? (factor - 1) * share : 0, {}};
    add_exchange(round.edges, size, factor, stride);
    rounds.push_back(std::move(round));
    stride *= factor;
  }
  if (!reduces) std::ranges::reverse(rounds);
  return rounds;
}

Rounds direct(int size, double share, double reduced) {
  PatternRound round{1, share, reduced, {}};
  add_exchange(round.edges, size, size, 1);
  return {round};
}

Rounds from_root(int size, double share) {
  PatternRound round{1, share, 0, {}};
  for (int i = 1; i < size; ++i) round.edges.push_back({0, i});
  return {round};
}

/// The root has everything.
Rounds gather_scattered(int size) {
  PatternRound round{1, 1.0 / size, 0, {}};
  for (int distance = 1; distance < size; ++distance) {
    for (int i = 0; i < size; ++i) {
      const int to = (i + distance) % size;
      if (to != 0) round.edges.push_back({i, to});
    }
  }
  return {round};
}

Rounds binomial(int size, bool reduces) {
  Rounds rounds;
  for (int bit = 1; bit < size; bit *= 2) {
    PatternRound round{1, 1, reduces ? 1.0 : 0, {}};
    for (int i = 0; i + bit < size; i += 2 * bit) {
      if (reduces) {
        round.edges.push_back({i + bit, i});
      } else {
        round.edges.push_back({i, i + bit});
      }
    }
    rounds.push_back(std::move(round));
  }
  if (!reduces) std::ranges::reverse(rounds);
  return rounds;
}

/// A binary tree over 1, ..., `last` in order, below 0: see the lowering.
int parent_of(int node, int last) {
  const int bit = node & -node;
  const int parent = (node ^ bit) | (bit << 1);
  return parent <= last ? parent : node ^ bit;
}

Rounds double_tree(int size) {
  const int last = size - 1;
  std::map<int, PatternRound> rounds;
  for (const bool is_second : {false, true}) {
    const auto member_of = [&](int node) {
      if (!is_second || node == 0) return node;
      if (last % 2 == 0) return last + 1 - node;
      return node == last ? 1 : node + 1;
    };
    for (int node = 1; node <= last; ++node) {
      int depth = 0;
      for (int at = node; at != 0; at = parent_of(at, last)) ++depth;
      rounds[depth].edges.push_back({member_of(parent_of(node, last)), member_of(node)});
    }
  }
  Rounds result;
  for (auto& [depth, round] : rounds) {
    round.share = 0.5;
    result.push_back(std::move(round));
  }
  return result;
}

}  // namespace

std::vector<PatternRound> pattern_of(Algorithm algorithm, PhaseKind kind, int size) {
  if (size < 2) return {};
  const bool reduces = kind == PhaseKind::reduce_scatter || kind == PhaseKind::reduce;
  const double own = 1.0 / size;
  switch (kind) {
    case PhaseKind::all_reduce:
      // All but the first member add up in scratch memory and copy the sum.
      return direct(size, 1, size);
    case PhaseKind::scatter:
      return from_root(size, own);
    case PhaseKind::reduce:
      return binomial(size, true);
    case PhaseKind::reduce_scatter:
    case PhaseKind::all_gather:
    case PhaseKind::broadcast:
      break;
  }
  const bool is_broadcast = kind == PhaseKind::broadcast;
  switch (algorithm) {
    case Algorithm::ring:
      return is_broadcast ? chain(size) : ring(size, reduces);
    case Algorithm::halving_doubling:
      return halving_doubling(size, reduces);
    case Algorithm::two_shot:
      return direct(size, own, reduces ? 1 - own : 0);
    case Algorithm::one_shot:
      return from_root(size, 1);
    case Algorithm::tree:
      return binomial(size, false);
    case Algorithm::double_tree:
      return double_tree(size);
  }
  throw Error(ErrorCode::internal, "pattern_of: unknown algorithm");
}

std::size_t edges_of(Algorithm algorithm, PhaseKind kind, int size) {
  const auto p = static_cast<std::size_t>(size);
  if (kind == PhaseKind::all_reduce) return p * (p - 1);
  if (kind == PhaseKind::broadcast || kind == PhaseKind::reduce || kind == PhaseKind::scatter) return 2 * p;
  if (algorithm == Algorithm::ring) return p;
  if (algorithm == Algorithm::two_shot) return p * (p - 1);
  std::size_t messages = 0;
  for (const int factor : prime_factors(size)) messages += static_cast<std::size_t>(factor) - 1;
  return p * messages;
}

}  // namespace ddl::topology
