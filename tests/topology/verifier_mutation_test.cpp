// Damages one step of right schedules in every way. A mutant that the verifier accepts must still compute the
// right result in an interpreter that shares no code with the verifier.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ddl/topology/program.hpp"
#include "ddl/topology/verifier.hpp"
#include "topology/concrete_run.hpp"
#include "topology/mutants.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/program/passes.hpp"
#include "topology/program_support.hpp"

namespace ddl::topology {
namespace {

struct Original {
  std::string name;
  Schedule schedule;
};

struct Tally {
  int made = 0;
  int passed = 0;           // accepted, and right
  int refused_checked = 0;  // refused mutants that the oracle has run
  int refused_right = 0;    // of these, how many it found right
  std::array<int, mutations> made_of{};
  std::array<int, mutations> passed_of{};
};

/// Tries all mutants of a schedule, or `most` random ones.
void try_mutants(const Original& original, int most, std::mt19937_64& random, Tally& tally) {
  SCOPED_TRACE(original.name);
  const Schedule& schedule = original.schedule;
  const Verdict verdict = verify(schedule);
  ASSERT_TRUE(verdict.ok) << verdict.problem;
  ASSERT_EQ(run_concretely(schedule, random(), 3), "");
  std::size_t steps = 0;
  for (const Program& program : schedule.ranks) steps += program.steps.size();
  const double share = static_cast<double>(most) / (static_cast<double>(steps) * mutations);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (std::size_t at = 0; at < schedule.ranks[rank].steps.size(); ++at) {
      for (int i = 0; i < mutations; ++i) {
        if (share < 1 && std::uniform_real_distribution(0.0, 1.0)(random) > share) continue;
        const auto mutation = static_cast<Mutation>(i);
        const auto changed = mutant(schedule, rank, at, mutation, random);
        if (!changed) continue;
        ++tally.made;
        ++tally.made_of[static_cast<std::size_t>(i)];
        const Verdict found = verify(*changed);
        if (found.ok) {
          ++tally.passed;
          ++tally.passed_of[static_cast<std::size_t>(i)];
          ASSERT_EQ(run_concretely(*changed, random()), "")
              << to_string(mutation) << " of rank " << rank << ", step " << at << " ("
              << to_string(schedule.ranks[rank].steps[at]) << ") passed";
        } else if (tally.made % 40 == 0) {
          ++tally.refused_checked;
          if (run_concretely(*changed, random()).empty()) ++tally.refused_right;
        }
      }
    }
  }
}

void report(const char* what, const Tally& tally) {
  std::string text = fmt::format("{}: {} mutants, {} passed and were right;", what, tally.made, tally.passed);
  for (int i = 0; i < mutations; ++i) {
    const auto at = static_cast<std::size_t>(i);
    text +=
        fmt::format(" {} {}/{}", to_string(static_cast<Mutation>(i)), tally.passed_of[at], tally.made_of[at]);
  }
  text += fmt::format("; of {} refused ones {} were right", tally.refused_checked, tally.refused_right);
  fmt::print("{}\n", text);
}

std::string names(const Plan& plan) {
  std::string text = fmt::format("{} {}", to_string(plan.collective), to_string(plan.decomposition));
  for (const PlanDimension& dimension : plan.dimensions) {
    text += fmt::format(" {}", to_string(dimension.algorithm));
  }
  return text + fmt::format(", {} chunks", plan.chunks);
}

/// A random order of ranks, so that mixing up positions and ranks is noticed.
std::vector<int> shuffled(int ranks, std::mt19937_64& random) {
  std::vector<int> order;
  for (int rank = 0; rank < ranks; ++rank) order.push_back(rank);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

/// The schedule for ranks that share memory with all others, or with their group of the first dimension.
Schedule cut_and_fused(const Plan& plan, Schedule schedule, std::mt19937_64& random) {
  const MessageSizes most = {1 + random() % 4, 1 + random() % 4};
  const bool all_share = random() % 2 == 0;
  std::vector<int> host(plan.order.size());
  for (std::size_t position = 0; position < plan.order.size(); ++position) {
    host[static_cast<std::size_t>(plan.order[position])] =
        all_share ? 0 : plan.decomposition.group_of(static_cast<int>(position));
  }
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    Program& program = schedule.ranks[rank];
    const SharesMemory shares = [&](int peer) { return host[static_cast<std::size_t>(peer)] == host[rank]; };
    program = fuse(cut(std::move(program), most, shares), shares);
  }
  return schedule;
}

/// Schedules of 2 to 9 ranks in one to three dimensions, some ragged, with each algorithm in each dimension.
std::vector<Original> lowered(Collective collective, std::mt19937_64& random) {
  const bool is_all_reduce = collective == Collective::all_reduce;
  const auto algorithms = algorithms_of(collective);
  const std::vector<std::pair<const char*, int>> decompositions = {
      {"2", 2},     {"3", 3},   {"4", 4},     {"5", 5},       {"6", 6},           {"7", 7},
      {"9", 9},     {"2x2", 4}, {"2x3", 6},   {"3x2", 6},     {"3x3", 9},         {"4x2", 8},
      {"2x2x2", 8}, {"1x3", 3}, {"3,2x2", 5}, {"2,3,1x3", 6}, {"2,1,1,3x2x2", 7}, {"1,4,2x3", 7}};
  std::vector<Original> originals;
  for (const auto& [text, ranks] : decompositions) {
    Plan plan;
    plan.collective = collective;
    plan.decomposition = Decomposition::parse(text, ranks);
    const auto dimensions = static_cast<std::size_t>(plan.decomposition.dimensions());
    for (std::size_t first = 0; first < algorithms.size(); ++first) {
      plan.dimensions.assign(dimensions, {});
      for (std::size_t d = 0; d < dimensions; ++d) {
        plan.dimensions[d].algorithm = algorithms[(first + d * (1 + random() % 4)) % algorithms.size()];
        plan.dimensions[d].carrier = random() % 2 == 0 ? Carrier::network : Carrier::shared_memory;
        const bool sums = is_all_reduce || collective == Collective::reduce_scatter;
        if (sums && plan.dimensions[d].carrier == Carrier::network && random() % 2 == 0) {
          plan.dimensions[d].wire = DataType::bf16;
        }
      }
      if (plan.decomposition.ragged() && !takes_ragged(collective, plan.dimensions[0].algorithm)) continue;
      for (const int chunks : {1, 4}) {
        plan.chunks = chunks;
        plan.order = shuffled(ranks, random);
        // Pieces of one and two elements, and in some cases of none.
        const std::size_t rest = has_pieces(collective) ? 0 : random() % 4;
        const std::size_t count = static_cast<std::size_t>(ranks) * (chunks == 1 ? 2 : 3) + rest;
        const int root = static_cast<int>(random() % static_cast<unsigned>(ranks));
        originals.push_back({names(plan), lower_all(plan, count, is_all_reduce ? 0 : root)});
        Schedule run = cut_and_fused(plan, originals.back().schedule, random);
        if (run.ranks != originals.back().schedule.ranks) {
          originals.push_back({names(plan) + ", cut and fused", std::move(run)});
        }
      }
    }
  }
  return originals;
}

constexpr int most_of_each = 400;

// The verifier would accept a plan that gives wrong gradients or hangs.
TEST(VerifierMutation, AllReduce) {
  std::mt19937_64 random(1);
  Tally tally;
  for (int ranks = 2; ranks <= 5; ++ranks) {
    const std::size_t count = 2 * static_cast<std::size_t>(ranks) + 1;
    try_mutants({"hand-made ring", ring_all_reduce(ranks, count)}, INT_MAX, random, tally);
    try_mutants({"hand-made one-shot", one_shot_all_reduce(ranks, 3)}, INT_MAX, random, tally);
  }
  for (const Original& original : lowered(Collective::all_reduce, random)) {
    try_mutants(original, most_of_each, random, tally);
    if (HasFatalFailure()) return;
  }
  report("all_reduce", tally);
  EXPECT_GT(tally.made, 30000);
  EXPECT_GT(tally.passed, 0) << "swaps of steps that have nothing to do with each other change nothing";
  EXPECT_LT(tally.passed, tally.made / 5);
  EXPECT_LE(tally.refused_right, tally.refused_checked / 50) << "schedules that are right are refused";
}

TEST(VerifierMutation, Broadcast) {
  std::mt19937_64 random(2);
  Tally tally;
  try_mutants({"hand-made chain", chain_broadcast(4, 8, 2, 3)}, INT_MAX, random, tally);
  for (const Original& original : lowered(Collective::broadcast, random)) {
    try_mutants(original, most_of_each, random, tally);
    if (HasFatalFailure()) return;
  }
  report("broadcast", tally);
  EXPECT_GT(tally.made, 20000);
  EXPECT_GT(tally.passed, 0);
  EXPECT_LT(tally.passed, tally.made / 4);
  EXPECT_LE(tally.refused_right, tally.refused_checked / 50) << "schedules that are right are refused";
}

void try_lowered(Collective collective, unsigned seed, int least_made) {
  std::mt19937_64 random(seed);
  Tally tally;
  for (const Original& original : lowered(collective, random)) {
    try_mutants(original, most_of_each / 2, random, tally);
    if (testing::Test::HasFatalFailure()) return;
  }
  report(std::string(to_string(collective)).c_str(), tally);
  EXPECT_GT(tally.made, least_made);
  EXPECT_GT(tally.passed, 0);
  EXPECT_LT(tally.passed, tally.made / 3);
  EXPECT_LE(tally.refused_right, tally.refused_checked / 20) << "schedules that are right are refused";
}

TEST(VerifierMutation, ReduceScatter) { try_lowered(Collective::reduce_scatter, 4, 5000); }
TEST(VerifierMutation, AllGather) { try_lowered(Collective::all_gather, 5, 5000); }
TEST(VerifierMutation, Reduce) { try_lowered(Collective::reduce, 6, 5000); }

TEST(VerifierMutation, Barrier) {
  std::mt19937_64 random(3);
  Tally tally;
  for (int ranks = 2; ranks <= 9; ++ranks) {
    Schedule schedule =
        schedule_of(Collective::barrier, 1, std::vector<Program>(static_cast<std::size_t>(ranks)));
    for (int rank = 0; rank < ranks; ++rank) {
      schedule.ranks[static_cast<std::size_t>(rank)] = lower_barrier(ranks, rank);
    }
    try_mutants({fmt::format("barrier of {}", ranks), schedule}, INT_MAX, random, tally);
    if (HasFatalFailure()) return;
  }
  report("barrier", tally);
  EXPECT_GT(tally.made, 4000);
  EXPECT_GT(tally.passed, 0);
}

}  // namespace
}  // namespace ddl::topology
