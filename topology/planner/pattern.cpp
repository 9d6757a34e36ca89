#include "topology/planner/pattern.hpp"

#include <algorithm>
#include <utility>

#include "topology/plan/algorithms.hpp"

namespace ddl::topology {

std::vector<PatternRound> pattern_of(Collective collective, Algorithm algorithm, PhaseKind kind, int size,
                                     bool in_turn) {
  const GroupPattern pattern(collective, algorithm, kind, size);
  const bool adds_in_scratch = kind == PhaseKind::all_reduce;
  const int repeat = pattern.is_repeated() ? pattern.rounds() : 1;
  std::vector<PatternRound> rounds;
  std::vector<int> hops(static_cast<std::size_t>(size), 0);     // that the data took to each member
  std::vector<int> senders(static_cast<std::size_t>(size), 0);  // by receiver, in a round
  std::vector<std::pair<int, int>> arrivals;                    // receivers and hops, in a round
  std::vector<Message> sent;
  for (int now = 0; now < pattern.rounds(); now += repeat) {
    PatternRound round;
    round.repeat = repeat;
    const auto [first, end, step] = pattern.senders(now);
    for (int member = first; member < end; member += step) {
      pattern.sends(now, member, sent);
      for (const Message& message : sent) {
        round.edges.push_back({member, message.peer});
        round.share = static_cast<double>(message.last - message.first) / pattern.pieces();
      }
    }
    int most = 0;  // senders to one member
    arrivals.clear();
    for (const PatternEdge& edge : round.edges) {
      arrivals.emplace_back(edge.to, hops[static_cast<std::size_t>(edge.from)] + 1);
      most = std::max(most, ++senders[static_cast<std::size_t>(edge.to)]);
    }
    for (const auto& [to, way] : arrivals) {
      senders[static_cast<std::size_t>(to)] = 0;
      hops[static_cast<std::size_t>(to)] = std::max(hops[static_cast<std::size_t>(to)], way);
    }
    if (adds_in_scratch) {
      // All but the first member copy the sum.
      round.reduced = size;
    } else if (pattern.reduces()) {
      round.reduced = (in_turn ? 1 : most) * round.share;
    }
    round.uses_scratch = adds_in_scratch || (pattern.reduces() && most > 1 && !in_turn);
    rounds.push_back(std::move(round));
  }
  if (pattern.reduces() || rounds.empty()) return rounds;
  // A member that has the data sends it on at once: latency counts for each hop on the longest way.
  const double longest = *std::ranges::max_element(hops);
  for (PatternRound& round : rounds) round.latency = longest / static_cast<double>(rounds.size());
  return rounds;
}

}  // namespace ddl::topology
