
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "topology/program_support.hpp"

namespace ddl::topology {
namespace {

/// The rule that `Program` documents, for a pair of steps.
bool conflict(const Step& a, const Step& b) {
  struct Access {
    std::size_t begin;
    std::size_t end;
    bool writes;
  };
  const auto accesses = [](const Step& step) {
    std::vector<Access> all{{step.begin, step.end, step.kind != StepKind::send}};
    if (step.kind == StepKind::reduce || step.kind == StepKind::copy) {
      all.push_back({step.source, step.source + step.size(), false});
    }
    return all;
  };
  for (const Access& x : accesses(a)) {
    for (const Access& y : accesses(b)) {
      if ((x.writes || y.writes) && x.begin < y.end && y.begin < x.end) return true;
    }
  }
  return false;
}

using Relation = std::vector<std::vector<bool>>;  // [later][earlier]

Relation closed(Relation relation) {
  for (std::size_t later = 0; later < relation.size(); ++later) {
    for (std::size_t middle = later; middle-- > 0;) {
      if (!relation[later][middle]) continue;
      for (std::size_t earlier = 0; earlier < middle; ++earlier) {
        if (relation[middle][earlier]) relation[later][earlier] = true;
      }
    }
  }
  return relation;
}

Relation listed(const Dependencies& dependencies) {
  const std::size_t n = dependencies.steps();
  Relation relation(n, std::vector<bool>(n, false));
  for (std::size_t earlier = 0; earlier < n; ++earlier) {
    for (const std::uint32_t later : dependencies.after(earlier)) relation[later][earlier] = true;
  }
  return relation;
}

Program random_program(std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::size_t size = 1 + below(12);
  Program program;
  for (std::size_t i = below(25); i > 0; --i) {
    Step step;
    step.kind = static_cast<StepKind>(below(6));
    step.begin = below(size);
    step.end = step.begin + 1 + below(size - step.begin);
    step.source = below(size);
    program.steps.push_back(step);
  }
  return program;
}

// A missing wait would be a race between two steps, and a needless one could deadlock.
TEST(Dependencies, OrderExactlyTheStepsThatConflict) {
  std::mt19937 random(1);
  std::size_t edges = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const Program program = random_program(random);
    const auto& steps = program.steps;
    const Dependencies dependencies(program);
    ASSERT_EQ(dependencies.steps(), steps.size());
    const Relation found = listed(dependencies);
    Relation expected(steps.size(), std::vector<bool>(steps.size(), false));
    for (std::size_t later = 0; later < steps.size(); ++later) {
      for (std::size_t earlier = 0; earlier < later; ++earlier) {
        expected[later][earlier] = conflict(steps[earlier], steps[later]);
        if (found[later][earlier]) {
          ++edges;
          ASSERT_TRUE(expected[later][earlier])
              << to_string(steps[later]) << " need not wait for " << to_string(steps[earlier]);
        }
      }
    }
    ASSERT_EQ(closed(found), closed(expected)) << "trial " << trial;
  }
  EXPECT_GT(edges, 10000U);
}

TEST(Dependencies, CountWhatTheyList) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 300; ++trial) {
    const Program program = random_program(random);
    const Dependencies dependencies(program);
    std::vector<std::uint32_t> before(program.steps.size(), 0);
    for (std::size_t step = 0; step < before.size(); ++step) {
      const auto after = dependencies.after(step);
      ASSERT_TRUE(std::ranges::is_sorted(after));
      ASSERT_EQ(std::ranges::adjacent_find(after), after.end()) << "listed twice";
      for (const std::uint32_t later : after) {
        ASSERT_GT(later, step);
        ++before[later];
      }
    }
    for (std::size_t step = 0; step < before.size(); ++step) {
      ASSERT_EQ(dependencies.number_before(step), before[step]);
    }
  }
}

TEST(Dependencies, LetReadersRunTogetherAndWritersWaitForThem) {
  const Dependencies dependencies(
      Program{{receive(1, 0, 8), send(2, 0, 4), send(3, 0, 8), send(2, 4, 8), receive(1, 4, 8)}});
  const auto after = [&](std::size_t step) {
    const auto list = dependencies.after(step);
    return std::vector<std::uint32_t>(list.begin(), list.end());
  };
  EXPECT_EQ(after(0), (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_EQ(after(1), std::vector<std::uint32_t>{});
  EXPECT_EQ(after(2), std::vector<std::uint32_t>{4});
  EXPECT_EQ(after(3), std::vector<std::uint32_t>{4});
  EXPECT_EQ(dependencies.number_before(4), 2U) << "the first receive comes before the sends already";
}

TEST(Dependencies, OfAStepWithinItself) {
  const Dependencies dependencies(Program{{finish(0, 8), copy(0, 4, 2), reduce(4, 8, 4)}});
  EXPECT_EQ(dependencies.number_before(1), 1U);
  EXPECT_EQ(dependencies.number_before(2), 2U) << "the copy read [4, 6)";
  EXPECT_EQ(dependencies.after(2).size(), 0U);
}

TEST(Dependencies, OfNoSteps) { EXPECT_EQ(Dependencies(Program{}).steps(), 0U); }

// Invalid schedules from files or callers would crash before `verify` can report them.
TEST(Dependencies, TakeRangesThatAreNone) {
  constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
  const Dependencies dependencies(
      Program{{finish(0, huge), finish(3, 3), send(1, 5, 2), copy(0, 2, huge), copy(0, 2, huge - 1),
               reduce(huge, 1, 7), finish(huge, huge), finish(0, 1)}});
  EXPECT_EQ(dependencies.number_before(7), 1U);
  EXPECT_EQ(dependencies.number_before(1), 0U);
  EXPECT_EQ(dependencies.number_before(2), 0U);
}

// Lists would grow with the square of the number of steps and make large schedules unusable.
TEST(Dependencies, StayFewInLargePrograms) {
  constexpr int ranks = 2000;
  const Program program = ring_all_reduce(ranks, 3 * ranks).ranks[5];
  const Dependencies dependencies(program);
  std::size_t edges = 0;
  for (std::size_t step = 0; step < program.steps.size(); ++step) edges += dependencies.number_before(step);
  EXPECT_LT(edges, 2 * program.steps.size());
}

}  // namespace
}  // namespace ddl::topology
