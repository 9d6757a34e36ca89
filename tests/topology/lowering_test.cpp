// Runs every lowering on symbols instead of numbers, so that a contribution that is lost, counted twice or
// in the wrong place shows, whatever the numbers would have been.

#include "ddl/topology/lowering.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/topology/dependencies.hpp"

namespace ddl::topology {
namespace {

constexpr int most_ranks = 64;

/// What a cell holds: how it came about (an index into Expressions) from which element of the buffers.
struct Cell {
  int expression = -1;  // -1: nothing
  std::size_t element = 0;
  friend bool operator==(const Cell&, const Cell&) = default;
};

/// Equal expressions have equal indices: operands and their order count.
class Expressions {
 public:
  int own(int rank) {
    return index({-1, rank}, std::bitset<most_ranks>().set(static_cast<std::size_t>(rank)), false);
  }
  /// -1 if a contribution would be in it twice, or one operand is nothing or finished.
  int combine(int a, int b) {
    if (a < 0 || b < 0 || finished(a) || finished(b) || (ranks(a) & ranks(b)).any()) return -1;
    return index({a, b}, ranks(a) | ranks(b), false);
  }
  int finish(int a) {
    if (a < 0 || finished(a)) return -1;
    return index({-2, a}, ranks(a), true);
  }
  [[nodiscard]] bool finished(int expression) const { return all_[at(expression)].second; }
  [[nodiscard]] std::bitset<most_ranks> ranks(int expression) const { return all_[at(expression)].first; }

 private:
  static std::size_t at(int expression) { return static_cast<std::size_t>(expression); }
  int index(std::pair<int, int> key, const std::bitset<most_ranks>& of_ranks, bool is_finished) {
    const auto [entry, is_new] = index_of_.try_emplace(key, static_cast<int>(all_.size()));
    if (is_new) all_.emplace_back(of_ranks, is_finished);
    return entry->second;
  }
  std::map<std::pair<int, int>, int> index_of_;
  std::vector<std::pair<std::bitset<most_ranks>, bool>> all_;
};

/// Runs a schedule over transports without any buffer: one step after the other, each time a random one of
/// those that may start; a send together with its receive.
class Run {
 public:
  Run(const Schedule& schedule, bool barrier, unsigned seed)
      : schedule_(schedule), random_(seed), barrier_(barrier) {
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      const Program& program = schedule.ranks[rank];
      memory_.emplace_back(schedule.count + program.scratch);
      for (std::size_t e = 0; e < schedule.count; ++e) {
        memory_[rank][e] = {expressions_.own(static_cast<int>(rank)), e};
      }
      dependencies_.emplace_back(program);
      waits_for_.emplace_back();
      for (std::size_t i = 0; i < program.steps.size(); ++i) {
        waits_for_[rank].push_back(dependencies_[rank].number_before(i));
      }
    }
  }

  /// Runs to the end and fails if that is not reached.
  void finish() {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      const auto& steps = schedule_.ranks[rank].steps;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        ASSERT_NO_FATAL_FAILURE(check(rank, steps[i]));
        if (!is_local(steps[i].kind)) stream(rank, steps[i]).push_back(i);
      }
      steps_left_ += steps.size();
    }
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (std::size_t i = 0; i < schedule_.ranks[rank].steps.size(); ++i) offer(rank, i);
    }
    while (!ready_.empty()) {
      std::swap(ready_[random_() % ready_.size()], ready_.back());
      const auto [rank, i] = ready_.back();
      ready_.pop_back();
      ASSERT_NO_FATAL_FAILURE(run(rank, i));
    }
    ASSERT_EQ(steps_left_, 0U) << "deadlock, or a send or receive without its other end";
  }

  [[nodiscard]] const Cell& cell(std::size_t rank, std::size_t element) const {
    return memory_[rank][element];
  }
  [[nodiscard]] const Expressions& expressions() const { return expressions_; }
  int own(int rank) { return expressions_.own(rank); }

 private:
  using Id = std::pair<std::size_t, std::size_t>;  // rank and step

  [[nodiscard]] const Step& step(const Id& id) const { return schedule_.ranks[id.first].steps[id.second]; }

  void check(std::size_t rank, const Step& step) const {
    ASSERT_LT(step.begin, step.end) << "rank " << rank << ", " << to_string(step);
    ASSERT_LE(step.end, memory_[rank].size()) << "rank " << rank << ", " << to_string(step);
    if (is_local(step.kind)) {
      ASSERT_EQ(step.peer, -1);
      ASSERT_LE(step.source + step.size(), memory_[rank].size());
    } else {
      ASSERT_GE(step.peer, 0);
      ASSERT_LT(static_cast<std::size_t>(step.peer), memory_.size());
      ASSERT_NE(static_cast<std::size_t>(step.peer), rank);
    }
  }

  std::vector<std::size_t>& stream(std::size_t rank, const Step& step) {
    const auto peer = static_cast<std::size_t>(step.peer);
    return step.kind == StepKind::send ? sends_[{rank, peer}] : receives_[{peer, rank}];
  }

  /// Puts a step that may start with the ready ones: a local one, or the send of a message of which both
  /// ends may start and are the first of their streams.
  void offer(std::size_t rank, std::size_t i) {
    const Step& step = schedule_.ranks[rank].steps[i];
    if (waits_for_[rank][i] != 0) return;
    if (is_local(step.kind)) {
      ready_.push_back({rank, i});
      return;
    }
    const auto peer = static_cast<std::size_t>(step.peer);
    offer_message(step.kind == StepKind::send ? std::pair{rank, peer} : std::pair{peer, rank});
  }

  void offer_message(const std::pair<std::size_t, std::size_t>& from_to) {
    const auto& sends = sends_[from_to];
    const auto& receives = receives_[from_to];
    const std::size_t k = messages_[from_to];
    if (k >= sends.size() || k >= receives.size()) return;
    if (waits_for_[from_to.first][sends[k]] != 0 || waits_for_[from_to.second][receives[k]] != 0) return;
    const Id send{from_to.first, sends[k]};
    if (std::find(ready_.begin(), ready_.end(), send) == ready_.end()) ready_.push_back(send);
  }

  void run(std::size_t rank, std::size_t i) {
    const Step& mine = step({rank, i});
    auto& memory = memory_[rank];
    if (mine.kind == StepKind::send) {
      const std::pair from_to{rank, static_cast<std::size_t>(mine.peer)};
      const std::size_t received = receives_[from_to][messages_[from_to]];
      const Step& theirs = step({from_to.second, received});
      ASSERT_EQ(mine.size(), theirs.size()) << to_string(mine) << " and " << to_string(theirs);
      for (std::size_t e = 0; e < mine.size(); ++e) {
        put(memory_[from_to.second][theirs.begin + e], memory[mine.begin + e],
            theirs.kind == StepKind::receive_reduce);
      }
      ++messages_[from_to];
      complete(rank, i);
      complete(from_to.second, received);
      offer_message(from_to);
      return;
    }
    for (std::size_t e = 0; e < mine.size(); ++e) {
      Cell& cell = memory[mine.begin + e];
      if (mine.kind == StepKind::finish) {
        cell.expression = expressions_.finish(cell.expression);
      } else {
        put(cell, memory[mine.source + e], mine.kind == StepKind::reduce);
      }
    }
    complete(rank, i);
  }

  void put(Cell& target, const Cell& source, bool reduce) {
    if (!reduce) {
      target = source;
    } else if (barrier_) {
      heard_[&target] |= expressions_.ranks(target.expression);
      target.expression = heard(target, source);
    } else if (target.element == source.element) {
      target.expression = expressions_.combine(target.expression, source.expression);
    } else {
      target.expression = -1;
    }
  }

  /// In a barrier a rank may be heard of twice.
  int heard(const Cell& target, const Cell& source) {
    int sum = target.expression;
    const auto ranks = expressions_.ranks(source.expression) & ~expressions_.ranks(target.expression);
    for (std::size_t rank = 0; rank < most_ranks; ++rank) {
      if (ranks[rank]) sum = expressions_.combine(sum, expressions_.own(static_cast<int>(rank)));
    }
    return sum;
  }

  void complete(std::size_t rank, std::size_t i) {
    --steps_left_;
    for (const std::uint32_t later : dependencies_[rank].after(i)) {
      --waits_for_[rank][later];
      offer(rank, later);
    }
  }

  const Schedule& schedule_;
  std::minstd_rand random_;
  bool barrier_;
  Expressions expressions_;
  std::vector<std::vector<Cell>> memory_;
  std::vector<Dependencies> dependencies_;
  std::vector<std::vector<std::uint32_t>> waits_for_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> sends_;     // from, to: steps
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> receives_;  // from, to: steps
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> messages_;               // that are through
  std::map<const Cell*, std::bitset<most_ranks>> heard_;
  std::vector<Id> ready_;
  std::size_t steps_left_ = 0;
};

const std::vector<Algorithm> for_all_reduce = {Algorithm::ring, Algorithm::halving_doubling,
                                               Algorithm::two_shot, Algorithm::one_shot, Algorithm::tree};
const std::vector<Algorithm> for_broadcast = {Algorithm::ring, Algorithm::two_shot, Algorithm::one_shot,
                                              Algorithm::tree, Algorithm::double_tree};

/// Every choice of one of `algorithms` for each of `dimensions`.
std::vector<std::vector<Algorithm>> choices(const std::vector<Algorithm>& algorithms, int dimensions) {
  std::vector<std::vector<Algorithm>> result{{}};
  for (int i = 0; i < dimensions; ++i) {
    std::vector<std::vector<Algorithm>> longer;
    for (const auto& choice : result) {
      for (const Algorithm algorithm : algorithms) {
        longer.push_back(choice);
        longer.back().push_back(algorithm);
      }
    }
    result = std::move(longer);
  }
  return result;
}

/// Ranks are dealt out in an order that is no rotation of 0, 1, ...
Plan plan_for(Collective collective, const std::string& decomposition, int ranks,
              const std::vector<Algorithm>& algorithms, int chunks) {
  Plan plan;
  plan.collective = collective;
  plan.decomposition = Decomposition::parse(decomposition, ranks);
  plan.dimensions.clear();
  for (const Algorithm algorithm : algorithms) plan.dimensions.push_back({.algorithm = algorithm});
  plan.order.resize(static_cast<std::size_t>(ranks));
  std::iota(plan.order.begin(), plan.order.end(), 0);
  std::shuffle(plan.order.begin(), plan.order.end(), std::minstd_rand(static_cast<unsigned>(ranks)));
  plan.order_name = "shuffled";
  plan.chunks = chunks;
  return plan;
}

std::string name_of(const Plan& plan, std::size_t count) {
  std::string name = fmt::format("{} {}", to_string(plan.collective), to_string(plan.decomposition));
  for (const PlanDimension& dimension : plan.dimensions) {
    name += fmt::format(" {}", static_cast<int>(dimension.algorithm));
  }
  return fmt::format("{}, {} chunks, count {}", name, plan.chunks, count);
}

void expect_all_reduced(const Plan& plan, std::size_t count, unsigned seed) {
  SCOPED_TRACE(name_of(plan, count));
  const Schedule schedule = lower_all(plan, count);
  Run run(schedule, false, seed);
  ASSERT_NO_FATAL_FAILURE(run.finish());
  const std::size_t ranks = schedule.ranks.size();
  for (std::size_t element = 0; element < count; ++element) {
    const Cell& first = run.cell(0, element);
    ASSERT_GE(first.expression, 0) << "element " << element;
    ASSERT_EQ(first.element, element);
    ASSERT_TRUE(run.expressions().finished(first.expression)) << "element " << element;
    ASSERT_EQ(run.expressions().ranks(first.expression).count(), ranks) << "element " << element;
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      ASSERT_EQ(run.cell(rank, element), first) << "rank " << rank << ", element " << element;
    }
  }
}

void expect_broadcast(const Plan& plan, std::size_t count, int root, unsigned seed) {
  SCOPED_TRACE(fmt::format("{}, root {}", name_of(plan, count), root));
  const Schedule schedule = lower_all(plan, count, root);
  Run run(schedule, false, seed);
  ASSERT_NO_FATAL_FAILURE(run.finish());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (std::size_t element = 0; element < count; ++element) {
      ASSERT_EQ(run.cell(rank, element), (Cell{run.own(root), element}))
          << "rank " << rank << ", element " << element;
    }
  }
}

struct Grid {
  std::string text;
  int ranks;
  int dimensions;
  bool ragged;
};

const std::vector<Grid> grids = {
    {"1", 1, 1, false},          {"2", 2, 1, false},          {"3", 3, 1, false},
    {"4", 4, 1, false},          {"5", 5, 1, false},          {"6", 6, 1, false},
    {"7", 7, 1, false},          {"8", 8, 1, false},          {"9", 9, 1, false},
    {"12", 12, 1, false},        {"16", 16, 1, false},        {"30", 30, 1, false},
    {"2x2", 4, 2, false},        {"4x3", 12, 2, false},       {"3x5", 15, 2, false},
    {"6x4", 24, 2, false},       {"2x2x2", 8, 3, false},      {"4x2x3", 24, 3, false},
    {"3x3x2", 18, 3, false},     {"1x3x1", 3, 3, false},      {"4,3,2,1x4", 10, 2, true},
    {"3,1,2x3", 6, 2, true},     {"1,6x2", 7, 2, true},       {"2,3,2,4x2x2", 11, 3, true},
    {"8,5,6,1,1,4x6", 25, 2, true},
};

bool lowerable(const Grid& grid, const std::vector<Algorithm>& choice) {
  return !grid.ragged || choice[0] != Algorithm::one_shot;
}

// Gradients would be wrong on some rank, ranks would drift apart, or the job would hang.
TEST(Lowering, AllReduceHoldsEveryContributionOnceAndAlikeOnAllRanks) {
  unsigned seed = 1;
  for (const Grid& grid : grids) {
    for (const auto& choice : choices(for_all_reduce, grid.dimensions)) {
      if (!lowerable(grid, choice)) continue;
      const auto n = static_cast<std::size_t>(grid.ranks);
      // The long counts take most of the time.
      const std::vector<std::size_t> counts =
          grid.dimensions < 3 ? std::vector<std::size_t>{0, 1, 2, 5, n - 1, n, n + 1, 3 * n + 2, 6 * n}
                              : std::vector<std::size_t>{1, n - 1, 2 * n + 5};
      for (const std::size_t count : counts) {
        const int chunks = static_cast<int>(seed % 7) + 1;
        const Plan plan = plan_for(Collective::all_reduce, grid.text, grid.ranks, choice, chunks);
        ASSERT_NO_FATAL_FAILURE(expect_all_reduced(plan, count, seed++));
      }
    }
  }
}

// Ranks would start from different models.
TEST(Lowering, BroadcastReachesEveryRankFromEveryRoot) {
  unsigned seed = 1;
  for (const Grid& grid : grids) {
    for (const auto& choice : choices(for_broadcast, grid.dimensions)) {
      for (int root = 0; root < grid.ranks; root += grid.dimensions < 3 ? 1 : 5) {
        const int chunks = static_cast<int>(seed % 7) + 1;
        const Plan plan = plan_for(Collective::broadcast, grid.text, grid.ranks, choice, chunks);
        ASSERT_NO_FATAL_FAILURE(expect_broadcast(plan, seed % 41, root, seed));
        ++seed;
      }
    }
  }
}

}  // namespace
}  // namespace ddl::topology
