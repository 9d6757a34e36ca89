#pragma once

#include <vector>

#include "ddl/topology/plan.hpp"

namespace ddl::topology {

struct PatternEdge {
  int from;  ///< Index in the group.
  int to;

  friend bool operator==(const PatternEdge&, const PatternEdge&) = default;
};

/// Messages that have no need to wait for one another, all of the same length.
struct PatternRound {
  int repeat = 1;      ///< So many such rounds, each after the one before.
  double share = 0;    ///< Of the group's range, in each message.
  double reduced = 0;  ///< Of the range: what a receiver adds or copies after the last byte came.
  std::vector<PatternEdge> edges;
  /// Of a message's latency, what keeps the next round waiting on the slowest way through the group.
  double latency = 1;
  bool uses_scratch = false;  ///< Receivers put it beside what they have before they add it.
};

/// What the members of a group of `size` send one another in a phase, without the data: the same as the
/// lowering's steps. Member 0 is the root of a broadcast or reduce. Edges of a ring are in its order.
/// `in_turn`: what several members send is reduced in one pass, as over shared memory.
std::vector<PatternRound> pattern_of(Collective collective, Algorithm algorithm, PhaseKind kind, int size,
                                     bool in_turn = false);

}  // namespace ddl::topology
