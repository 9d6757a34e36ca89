#include "topology/planner/pattern.hpp"

#include <algorithm>
#include <bit>
#include <map>

#include "ddl/error.hpp"
#include "topology/plan/phase_figures.hpp"
#include "topology/program/algorithms.hpp"

namespace ddl::topology {
namespace {

using Rounds = std::vector<PatternRound>;

Rounds ring(int size, bool reduces) {
  PatternRound round{size - 1, 1.0 / size, reduces ? 1.0 / size : 0, {}, 1, false};
  for (int i = 0; i < size; ++i) round.edges.push_back({i, (i + 1) % size});
  return {round};
}

Rounds chain(int size, bool reduces) {
  Rounds rounds;
  for (int i = 0; i + 1 < size; ++i) {
    const PatternEdge edge = reduces ? PatternEdge{size - 1 - i, size - 2 - i} : PatternEdge{i, i + 1};
    rounds.push_back({1, 1, reduces ? 1.0 : 0, {edge}, 1, false});
  }
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

Rounds halving_doubling(int size, bool reduces, bool in_turn) {
  Rounds rounds;
  int stride = 1;
  double share = 1;
  for (const int factor : prime_factors(size)) {
    share /= factor;
    PatternRound round{1, share, reduces ? (in_turn ? 1 : factor - 1) * share : 0, {}, 1, false};
    add_exchange(round.edges, size, factor, stride);
    round.uses_scratch = reduces && factor > 2 && !in_turn;
    rounds.push_back(std::move(round));
    stride *= factor;
  }
  if (!reduces) std::ranges::reverse(rounds);
  return rounds;
}

Rounds direct(int size, double share, double reduced, bool uses_scratch) {
  PatternRound round{1, share, reduced, {}, 1, uses_scratch};
  add_exchange(round.edges, size, size, 1);
  return {round};
}

Rounds from_root(int size, double share) {
  PatternRound round{1, share, 0, {}, 1, false};
  for (int i = 1; i < size; ++i) round.edges.push_back({0, i});
  return {round};
}

Rounds to_root(int size, double share, double reduced, bool uses_scratch) {
  PatternRound round{1, share, reduced, {}, 1, uses_scratch};
  for (int i = 1; i < size; ++i) round.edges.push_back({i, 0});
  return {round};
}

/// The root has everything.
Rounds gather_scattered(int size) {
  PatternRound round{1, 1.0 / size, 0, {}, 1, false};
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
    PatternRound round{1, 1, reduces ? 1.0 : 0, {}, 1, false};
    for (int i = 0; i + bit < size; i += 2 * bit) {
      if (reduces) {
        round.edges.push_back({i + bit, i});
      } else {
        round.edges.push_back({i, i + bit});
      }
    }
    rounds.push_back(std::move(round));
  }
  if (reduces) return rounds;
  std::ranges::reverse(rounds);
  // Who has the data sends it on at once: latency counts for each edge on the way to a member.
  int most_edges = 0;
  for (int i = 0; i < size; ++i) most_edges = std::max(most_edges, std::popcount(static_cast<unsigned>(i)));
  for (PatternRound& round : rounds)
    round.latency = static_cast<double>(most_edges) / static_cast<double>(rounds.size());
  return rounds;
}

Rounds double_tree(int size) {
  std::map<int, PatternRound> rounds;  // by the depth that is reached
  for (const bool is_second : {false, true}) {
    const BinaryTree tree(size, is_second);
    for (int node = 1; node < size; ++node) {
      rounds[tree.depth_of(node)].edges.push_back(
          {tree.member_of(tree.parent_of(node)), tree.member_of(node)});
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

std::vector<PatternRound> pattern_of(Collective collective, Algorithm algorithm, PhaseKind kind, int size,
                                     bool in_turn) {
  if (size < 2) return {};
  const bool reduces = kind == PhaseKind::reduce_scatter || kind == PhaseKind::reduce;
  const double own = 1.0 / size;
  switch (kind) {
    case PhaseKind::all_reduce:
      // All but the first member add up in scratch memory and copy the sum.
      return direct(size, 1, size, true);
    case PhaseKind::scatter:
      return from_root(size, own);
    case PhaseKind::gather:
      return to_root(size, own, 0, false);
    case PhaseKind::reduce:
      if (algorithm == Algorithm::ring) return chain(size, true);
      if (algorithm == Algorithm::one_shot)
        return to_root(size, 1, in_turn ? 1 : size - 1, size > 2 && !in_turn);
      return binomial(size, true);
    case PhaseKind::all_gather:
      if (collective == Collective::broadcast) return gather_scattered(size);
      break;
    case PhaseKind::reduce_scatter:
    case PhaseKind::broadcast:
      break;
  }
  const bool is_broadcast = kind == PhaseKind::broadcast;
  switch (algorithm) {
    case Algorithm::ring:
      return is_broadcast ? chain(size, false) : ring(size, reduces);
    case Algorithm::halving_doubling:
      return halving_doubling(size, reduces, in_turn);
    case Algorithm::two_shot:
      return direct(size, own, reduces ? (in_turn ? own : 1 - own) : 0, reduces && size > 2 && !in_turn);
    case Algorithm::one_shot:
      return from_root(size, 1);
    case Algorithm::tree:
      return binomial(size, false);
    case Algorithm::double_tree:
      return double_tree(size);
  }
  throw Error(ErrorCode::internal, "pattern_of: unknown algorithm");
}

}  // namespace ddl::topology
