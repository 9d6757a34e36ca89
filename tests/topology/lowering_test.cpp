// A symbolic run of every lowering: elements are sets of contributions instead of numbers, so a
// contribution that is lost or counted twice shows, whatever the numbers would have been.

#include "ddl/topology/lowering.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ddl/error.hpp"

namespace ddl::topology {
namespace {

/// How often each rank's contribution is in an element, and whether `finish` was applied.
struct Symbol {
  std::vector<int> contributions;
  int finished = 0;
  friend bool operator==(const Symbol&, const Symbol&) = default;
};

using Buffers = std::vector<std::vector<Symbol>>;  // [rank][element]

struct Case {
  std::string name;
  std::vector<std::string> hosts;
};

std::vector<Case> host_maps() {
  std::vector<Case> cases;
  for (const int n : {1, 2, 3, 4, 5, 7, 8, 16}) {
    cases.push_back(
        {fmt::format("{} on one host", n), std::vector<std::string>(static_cast<std::size_t>(n), "a")});
  }
  cases.push_back({"2x2", {"a", "a", "b", "b"}});
  cases.push_back({"2x2 round robin", {"a", "b", "a", "b"}});
  cases.push_back({"one rank per host", {"a", "b", "c", "d", "e"}});
  cases.push_back({"3+1", {"a", "a", "a", "b"}});
  cases.push_back({"1+3", {"a", "b", "b", "b"}});
  cases.push_back({"5+2+1", {"a", "a", "a", "a", "a", "b", "b", "c"}});
  cases.push_back({"2+3+4 mixed", {"a", "b", "c", "c", "b", "a", "c", "b", "c"}});
  cases.push_back({"3x4 round robin", {"a", "b", "c", "a", "b", "c", "a", "b", "c", "a", "b", "c"}});
  return cases;
}

std::vector<std::size_t> counts_for(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::set<std::size_t> counts{0, 1, 2, 3, 5, 13, 31, 97, n - 1, n, n + 1, 2 * n, 10 * n + 3};
  return {counts.begin(), counts.end()};
}

Schedule lower_all(const RankMap& map, const std::function<Steps(int)>& lower) {
  Schedule schedule;
  for (int rank = 0; rank < map.ranks(); ++rank) schedule.ranks.push_back(lower(rank));
  return schedule;
}

bool overlap(const Step& a, const Step& b) { return a.begin < b.end && b.begin < a.end; }
bool writes(const Step& step) { return step.kind != StepKind::send; }

/// What the executor relies on: ascending rounds, ranges inside the buffer, and no two steps of a
/// round of which one writes what the other touches.
void expect_well_formed(const Schedule& schedule, std::size_t count) {
  const int ranks = static_cast<int>(schedule.ranks.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const Steps& steps = schedule.ranks[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      ASSERT_LT(step.begin, step.end) << "rank " << rank << ", " << to_string(step);
      ASSERT_LE(step.end, count) << "rank " << rank << ", " << to_string(step);
      ASSERT_TRUE(step.peer >= 0 && step.peer < ranks);
      ASSERT_EQ(step.peer == rank, step.kind == StepKind::finish);
      if (i > 0) {
        ASSERT_LE(steps[i - 1].round, step.round);
      }
      for (std::size_t j = 0; j < i; ++j) {
        const Step& other = steps[j];
        if (other.round != step.round || step.kind == StepKind::finish || other.kind == StepKind::finish)
          continue;
        ASSERT_FALSE(overlap(step, other) && (writes(step) || writes(other)))
            << "rank " << rank << ": " << to_string(other) << " and " << to_string(step);
      }
    }
  }
}

/// Runs the schedule round by round. Sends of a round see the buffer as it is after the round's
/// `finish` steps. Fails unless every receive finds its send in its own round, with the same length,
/// and nothing is left over: with that, no order of progress can deadlock.
void execute(const Schedule& schedule, Buffers& buffers) {
  using Message = std::vector<Symbol>;
  std::uint32_t last = 0;
  for (const Steps& steps : schedule.ranks) {
    if (!steps.empty()) last = std::max(last, steps.back().round);
  }
  for (std::uint32_t round = 0; round <= last; ++round) {
    std::map<std::pair<int, int>, std::deque<Message>> streams;
    const auto for_each = [&](auto&& visit) {
      for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        for (const Step& step : schedule.ranks[rank]) {
          if (step.round == round) visit(static_cast<int>(rank), buffers[rank], step);
        }
      }
    };
    for_each([&](int, std::vector<Symbol>& buffer, const Step& step) {
      if (step.kind != StepKind::finish) return;
      for (std::size_t e = step.begin; e < step.end; ++e) ++buffer[e].finished;
    });
    for_each([&](int rank, std::vector<Symbol>& buffer, const Step& step) {
      if (step.kind != StepKind::send) return;
      streams[{rank, step.peer}].emplace_back(buffer.begin() + static_cast<std::ptrdiff_t>(step.begin),
                                              buffer.begin() + static_cast<std::ptrdiff_t>(step.end));
    });
    for_each([&](int rank, std::vector<Symbol>& buffer, const Step& step) {
      if (step.kind != StepKind::receive && step.kind != StepKind::receive_reduce) return;
      auto& stream = streams[{step.peer, rank}];
      ASSERT_FALSE(stream.empty()) << "rank " << rank << ": nobody sends for " << to_string(step);
      const Message message = stream.front();
      stream.pop_front();
      ASSERT_EQ(message.size(), step.end - step.begin) << "rank " << rank << ", " << to_string(step);
      for (std::size_t i = 0; i < message.size(); ++i) {
        Symbol& element = buffer[step.begin + i];
        if (step.kind == StepKind::receive) {
          element = message[i];
        } else {
          ASSERT_EQ(element.finished + message[i].finished, 0) << "reduced after it was finished";
          for (std::size_t r = 0; r < element.contributions.size(); ++r) {
            element.contributions[r] += message[i].contributions[r];
          }
        }
      }
    });
    for (const auto& [pair, stream] : streams) {
      ASSERT_TRUE(stream.empty()) << "round " << round << ": rank " << pair.second
                                  << " does not take what rank " << pair.first << " sends";
    }
  }
}

Buffers own_contributions(int ranks, std::size_t count) {
  Buffers buffers;
  for (int rank = 0; rank < ranks; ++rank) {
    Symbol symbol{std::vector<int>(static_cast<std::size_t>(ranks), 0), 0};
    symbol.contributions[static_cast<std::size_t>(rank)] = 1;
    buffers.emplace_back(count, symbol);
  }
  return buffers;
}

void expect_all_reduced(const Case& test_case, Steps (*lower)(const RankMap&, int, std::size_t)) {
  const RankMap map(test_case.hosts);
  for (const std::size_t count : counts_for(map.ranks())) {
    SCOPED_TRACE(fmt::format("{}, count {}", test_case.name, count));
    const Schedule schedule = lower_all(map, [&](int rank) { return lower(map, rank, count); });
    ASSERT_NO_FATAL_FAILURE(expect_well_formed(schedule, count));
    Buffers buffers = own_contributions(map.ranks(), count);
    ASSERT_NO_FATAL_FAILURE(execute(schedule, buffers));
    const Symbol expected{std::vector<int>(static_cast<std::size_t>(map.ranks()), 1), 1};
    for (int rank = 0; rank < map.ranks(); ++rank) {
      for (std::size_t e = 0; e < count; ++e) {
        ASSERT_EQ(buffers[static_cast<std::size_t>(rank)][e], expected)
            << "rank " << rank << ", element " << e;
      }
    }
  }
}

/// Elements sent over each host's link, outwards.
std::vector<std::size_t> sent_by_host(const RankMap& map, const Schedule& schedule) {
  std::vector<std::size_t> sent(static_cast<std::size_t>(map.hosts()), 0);
  for (int rank = 0; rank < map.ranks(); ++rank) {
    for (const Step& step : schedule.ranks[static_cast<std::size_t>(rank)]) {
      if (step.kind == StepKind::send && map.host_of(rank) != map.host_of(step.peer)) {
        sent[static_cast<std::size_t>(map.host_of(rank))] += step.end - step.begin;
      }
    }
  }
  return sent;
}

// Gradients would be wrong on some rank, or the job would hang.
TEST(Lowering, RingAllReduceHoldsEveryContributionOnce) {
  for (const Case& test_case : host_maps()) {
    ASSERT_NO_FATAL_FAILURE(expect_all_reduced(test_case, lower_ring_all_reduce));
  }
}

TEST(Lowering, HierarchicalAllReduceHoldsEveryContributionOnce) {
  for (const Case& test_case : host_maps()) {
    ASSERT_NO_FATAL_FAILURE(expect_all_reduced(test_case, lower_hierarchical_all_reduce));
  }
}

// Ranks would start from different models.
TEST(Lowering, BroadcastReachesEveryRankFromEveryRoot) {
  for (const Case& test_case : host_maps()) {
    const RankMap map(test_case.hosts);
    for (const TreeShape shape : {TreeShape::chain, TreeShape::binomial}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{20}}) {
        for (const std::size_t chunk : {std::size_t{1}, std::size_t{3}, std::size_t{100}}) {
          for (int root = 0; root < map.ranks(); ++root) {
            SCOPED_TRACE(fmt::format("{}, shape {}, count {}, chunk {}, root {}", test_case.name,
                                     static_cast<int>(shape), count, chunk, root));
            const Schedule schedule =
                lower_all(map, [&](int r) { return lower_broadcast(map, r, count, root, chunk, shape); });
            ASSERT_NO_FATAL_FAILURE(expect_well_formed(schedule, count));
            Buffers buffers = own_contributions(map.ranks(), count);
            const std::vector<Symbol> expected = buffers[static_cast<std::size_t>(root)];
            ASSERT_NO_FATAL_FAILURE(execute(schedule, buffers));
            for (const auto& buffer : buffers) ASSERT_EQ(buffer, expected);
          }
        }
      }
    }
  }
}

// A host's link would carry the same bytes several times.
TEST(Lowering, BroadcastEntersEachHostOnce) {
  const RankMap map({"a", "b", "a", "c", "b", "c", "a"});
  for (int root = 0; root < map.ranks(); ++root) {
    const Schedule schedule =
        lower_all(map, [&](int r) { return lower_broadcast(map, r, 60, root, 7, TreeShape::chain); });
    std::vector<std::size_t> received(3, 0);
    for (int rank = 0; rank < map.ranks(); ++rank) {
      for (const Step& step : schedule.ranks[static_cast<std::size_t>(rank)]) {
        if (step.kind == StepKind::receive && map.host_of(rank) != map.host_of(step.peer)) {
          received[static_cast<std::size_t>(map.host_of(rank))] += step.end - step.begin;
        }
      }
    }
    for (int host = 0; host < 3; ++host) {
      EXPECT_EQ(received[static_cast<std::size_t>(host)], host == map.host_of(root) ? 0U : 60U);
    }
  }
}

// A rank could leave the barrier before another has come.
TEST(Lowering, BarrierHearsFromEveryRank) {
  for (const Case& test_case : host_maps()) {
    SCOPED_TRACE(test_case.name);
    const RankMap map(test_case.hosts);
    Schedule schedule = lower_all(map, [&](int rank) { return lower_barrier(map, rank); });
    // What a rank knows adds up; the barrier itself moves an empty byte.
    for (Steps& steps : schedule.ranks) {
      for (Step& step : steps) {
        if (step.kind == StepKind::receive) step.kind = StepKind::receive_reduce;
      }
    }
    Buffers buffers = own_contributions(map.ranks(), 1);
    ASSERT_NO_FATAL_FAILURE(execute(schedule, buffers));
    for (const auto& buffer : buffers) {
      for (const int heard : buffer[0].contributions) EXPECT_GE(heard, 1);
    }
  }
}

// The two-level plan would lose what it exists for: 2N(H-1)/H over each host's link, even where
// ranks are placed round-robin or hosts are unequal.
TEST(Lowering, HierarchicalAllReduceSendsTheLeastOverAHostsLink) {
  const std::size_t count = 12 * 7 * 5;
  for (const Case& test_case : host_maps()) {
    SCOPED_TRACE(test_case.name);
    const RankMap map(test_case.hosts);
    const Schedule schedule =
        lower_all(map, [&](int rank) { return lower_hierarchical_all_reduce(map, rank, count); });
    const auto hosts = static_cast<std::size_t>(map.hosts());
    const std::size_t rounding = 2 * hosts * static_cast<std::size_t>(map.ranks());
    for (const std::size_t sent : sent_by_host(map, schedule)) {
      // Each segment rounds to whole elements.
      EXPECT_LE(sent, 2 * count * (hosts - 1) / hosts + rounding);
      if (hosts == 1) {
        EXPECT_EQ(sent, 0U);
      }
    }
  }
}

// The bytes a rank sends must not depend on the decomposition (only where they go).
TEST(Lowering, EveryRankSendsTheSameBytesWhateverThePlan) {
  const RankMap map({"a", "b", "a", "b", "a", "b", "a", "b"});
  const std::size_t count = 8 * 1000;
  for (const auto lower : {lower_ring_all_reduce, lower_hierarchical_all_reduce}) {
    for (int rank = 0; rank < map.ranks(); ++rank) {
      std::size_t sent = 0;
      for (const Step& step : lower(map, rank, count)) {
        if (step.kind == StepKind::send) sent += step.end - step.begin;
      }
      EXPECT_EQ(sent, 2 * count * 7 / 8);
    }
  }
}

// A job on a thousand ranks would spend its memory on schedules.
TEST(Lowering, ARanksStepsAreLinearInTheRanks) {
  const RankMap map(std::vector<std::string>(1000, "a"));
  EXPECT_EQ(lower_ring_all_reduce(map, 5, 1'000'003).size(), 4U * 999 + 1);
  EXPECT_LE(lower_barrier(map, 5).size(), 20U);
  EXPECT_LE(lower_broadcast(map, 0, 100, 0, 100, TreeShape::binomial).size(), 10U);
}

TEST(Lowering, RefusesUnknownRanks) {
  const RankMap map({"a", "a"});
  EXPECT_THROW(lower_ring_all_reduce(map, 2, 1), Error);
  EXPECT_THROW(lower_hierarchical_all_reduce(map, -1, 1), Error);
  EXPECT_THROW(lower_broadcast(map, 0, 1, 2, 1, TreeShape::chain), Error);
  EXPECT_THROW(lower_broadcast(map, 0, 1, 0, 0, TreeShape::chain), Error);
  EXPECT_THROW(lower_barrier(map, 2), Error);
}

}  // namespace
}  // namespace ddl::topology
