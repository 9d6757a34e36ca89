// Runs every lowering on symbols instead of numbers, which detects contributions that are lost, counted twice
// or misplaced, whatever their values.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/verifier.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/program/passes.hpp"

namespace ddl::topology {
namespace {

bool is_joined(const Step& step) { return step.joined; }

constexpr int most_ranks = 64;

/// The content of a cell: the expression that computed it (an index into Expressions), and the element of the
/// buffers that it belongs to.
struct Cell {
  int expression = -1;  // -1: nothing
  std::size_t element = 0;
  friend bool operator==(const Cell&, const Cell&) = default;
};

/// Symbolic expressions. Two expressions have the same index if their operands and the operands' order are
/// the same.
class Expressions {
 public:
  int own(int rank) {
    return index({-1, rank}, std::bitset<most_ranks>().set(static_cast<std::size_t>(rank)), false);
  }
  /// Returns -1 if a contribution would occur twice, or if an operand is missing or finished.
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

/// Runs a schedule over transports without buffers, one step at a time, chosen at random from those that may
/// start. A send runs together with its receive.
class SymbolicRun {
 public:
  SymbolicRun(const Schedule& schedule, unsigned seed) : schedule_(schedule), random_(seed) {
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      const Program& program = schedule.ranks[rank];
      memory_.emplace_back(schedule.count + program.scratch);
      const std::size_t piece = schedule.count / schedule.ranks.size();
      for (std::size_t e = 0; e < schedule.count; ++e) {
        if (schedule.collective == Collective::all_gather && e / piece != rank) continue;
        memory_[rank][e] = {expressions_.own(static_cast<int>(rank)), e};
      }
      dependencies_.emplace_back(program);
      waits_for_.emplace_back();
      for (std::size_t i = 0; i < program.steps.size(); ++i) {
        waits_for_[rank].push_back(dependencies_[rank].number_before(i));
      }
    }
  }

  /// Runs to the end; fails the test if the schedule deadlocks.
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
      if (has_source(step.kind)) {
        ASSERT_LE(step.source + step.size(), memory_[rank].size());
      }
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

  /// Adds a step to the ready ones if it may start: a local step, or the send of a message of which both ends
  /// may start and are the first of their streams.
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
      if (mine.kind == StepKind::round) continue;
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
    } else if (schedule_.collective == Collective::barrier) {
      target.expression = heard(target, source);
    } else if (target.element == source.element) {
      target.expression = expressions_.combine(target.expression, source.expression);
    } else {
      target.expression = -1;
    }
  }

  /// The combination in a barrier, in which a rank may be heard of twice.
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
  Expressions expressions_;
  std::vector<std::vector<Cell>> memory_;
  std::vector<Dependencies> dependencies_;
  std::vector<std::vector<std::uint32_t>> waits_for_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> sends_;     // from, to: steps
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> receives_;  // from, to: steps
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> messages_;               // delivered ones
  std::vector<Id> ready_;
  std::size_t steps_left_ = 0;
};

const std::vector<Algorithm> for_all_reduce = {Algorithm::ring, Algorithm::halving_doubling,
                                               Algorithm::two_shot, Algorithm::one_shot, Algorithm::tree};
const std::vector<Algorithm> for_broadcast = {Algorithm::ring, Algorithm::two_shot, Algorithm::one_shot,
                                              Algorithm::tree, Algorithm::double_tree};

const std::vector<Algorithm> for_reduce = {Algorithm::ring, Algorithm::two_shot, Algorithm::one_shot,
                                           Algorithm::tree};
const std::vector<Algorithm> for_pieces = {Algorithm::ring, Algorithm::halving_doubling, Algorithm::two_shot};

const std::vector<Algorithm>& algorithms_for(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return for_all_reduce;
    case Collective::broadcast:
      return for_broadcast;
    case Collective::reduce:
      return for_reduce;
    default:
      return for_pieces;
  }
}

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

/// A plan whose order of ranks is no rotation of 0, 1, ... All dimensions use the network.
Plan plan_for(Collective collective, const std::string& decomposition, int ranks,
              const std::vector<Algorithm>& algorithms, int chunks) {
  Plan plan;
  plan.collective = collective;
  plan.decomposition = Decomposition::parse(decomposition, ranks);
  plan.dimensions.clear();
  for (const Algorithm algorithm : algorithms) plan.dimensions.push_back({algorithm, Carrier::network});
  plan.order.resize(static_cast<std::size_t>(ranks));
  std::iota(plan.order.begin(), plan.order.end(), 0);
  std::shuffle(plan.order.begin(), plan.order.end(), std::minstd_rand(static_cast<unsigned>(ranks)));
  plan.order_name = "shuffled";
  plan.chunks = chunks;
  return plan;
}

/// The plan with shared memory in the dimensions whose bits are set in `dimensions`.
Plan over_shared_memory(Plan plan, unsigned dimensions) {
  for (PlanDimension& dimension : plan.dimensions) {
    if ((dimensions & 1) != 0) dimension.carrier = Carrier::shared_memory;
    dimensions >>= 1;
  }
  return plan;
}

std::string name_of(const Plan& plan, std::size_t count) {
  std::string name = fmt::format("{} {}", to_string(plan.collective), to_string(plan.decomposition));
  for (const PlanDimension& dimension : plan.dimensions) {
    name += fmt::format(" {} {}", to_string(dimension.algorithm), to_string(dimension.carrier));
  }
  return fmt::format("{}, {} chunks, count {}", name, plan.chunks, count);
}

void expect_all_reduced(const Plan& plan, std::size_t count, unsigned seed) {
  SCOPED_TRACE(name_of(plan, count));
  const Schedule schedule = lower_all(plan, count);
  SymbolicRun run(schedule, seed);
  ASSERT_NO_FATAL_FAILURE(run.finish());
  const Verdict verdict = verify(schedule);
  ASSERT_TRUE(verdict.ok) << verdict.problem;
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
  SymbolicRun run(schedule, seed);
  ASSERT_NO_FATAL_FAILURE(run.finish());
  const Verdict verdict = verify(schedule);
  ASSERT_TRUE(verdict.ok) << verdict.problem;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (std::size_t element = 0; element < count; ++element) {
      ASSERT_EQ(run.cell(rank, element), (Cell{run.own(root), element}))
          << "rank " << rank << ", element " << element;
    }
  }
}

/// Expects the reduction of all ranks in elements [begin, end) of a rank's buffer.
void expect_reduced(const SymbolicRun& run, std::size_t ranks, std::size_t rank, std::size_t begin,
                    std::size_t end) {
  for (std::size_t element = begin; element < end; ++element) {
    const Cell& cell = run.cell(rank, element);
    ASSERT_GE(cell.expression, 0) << "rank " << rank << ", element " << element;
    ASSERT_EQ(cell.element, element) << "rank " << rank;
    ASSERT_TRUE(run.expressions().finished(cell.expression)) << "rank " << rank << ", element " << element;
    ASSERT_EQ(run.expressions().ranks(cell.expression).count(), ranks)
        << "rank " << rank << ", element " << element;
  }
}

void expect_reduced_at(const Plan& plan, std::size_t count, int root, unsigned seed) {
  SCOPED_TRACE(fmt::format("{}, root {}", name_of(plan, count), root));
  const Schedule schedule = lower_all(plan, count, root);
  SymbolicRun run(schedule, seed);
  ASSERT_NO_FATAL_FAILURE(run.finish());
  const Verdict verdict = verify(schedule);
  ASSERT_TRUE(verdict.ok) << verdict.problem;
  expect_reduced(run, schedule.ranks.size(), static_cast<std::size_t>(root), 0, count);
}

/// Checks a reduce_scatter or all_gather with pieces of `piece` elements.
void expect_pieces(const Plan& plan, std::size_t piece, unsigned seed) {
  const std::size_t ranks = plan.order.size();
  SCOPED_TRACE(name_of(plan, ranks * piece));
  const Schedule schedule = lower_all(plan, ranks * piece);
  SymbolicRun run(schedule, seed);
  ASSERT_NO_FATAL_FAILURE(run.finish());
  const Verdict verdict = verify(schedule);
  ASSERT_TRUE(verdict.ok) << verdict.problem;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (plan.collective == Collective::reduce_scatter) {
      ASSERT_NO_FATAL_FAILURE(expect_reduced(run, ranks, rank, rank * piece, (rank + 1) * piece));
      continue;
    }
    for (std::size_t element = 0; element < ranks * piece; ++element) {
      ASSERT_EQ(run.cell(rank, element), (Cell{run.own(static_cast<int>(element / piece)), element}))
          << "rank " << rank << ", element " << element;
    }
  }
}

struct Shape {
  std::string text;
  int ranks;
  int dimensions;
  bool ragged;
};

const std::vector<Shape> shapes = {
    {"1", 1, 1, false},
    {"2", 2, 1, false},
    {"3", 3, 1, false},
    {"4", 4, 1, false},
    {"5", 5, 1, false},
    {"6", 6, 1, false},
    {"7", 7, 1, false},
    {"8", 8, 1, false},
    {"9", 9, 1, false},
    {"12", 12, 1, false},
    {"16", 16, 1, false},
    {"30", 30, 1, false},
    {"2x2", 4, 2, false},
    {"4x3", 12, 2, false},
    {"3x5", 15, 2, false},
    {"6x4", 24, 2, false},
    {"2x2x2", 8, 3, false},
    {"4x2x3", 24, 3, false},
    {"3x3x2", 18, 3, false},
    {"1x3x1", 3, 3, false},
    {"4,3,2,1x4", 10, 2, true},
    {"3,1,2x3", 6, 2, true},
    {"1,6x2", 7, 2, true},
    {"2,3,2,4x2x2", 11, 3, true},
    {"8,5,6,1,1,4x6", 25, 2, true},
};

bool lowerable(Collective collective, const Shape& shape, const std::vector<Algorithm>& choice) {
  return !shape.ragged || takes_ragged(collective, choice[0]);
}

// Gradients would be wrong on some rank, ranks would drift apart, or the job would hang.
TEST(Lowering, AllReduceHoldsEveryContributionOnceAndAlikeOnAllRanks) {
  unsigned seed = 1;
  for (const Shape& shape : shapes) {
    for (const auto& choice : choices(for_all_reduce, shape.dimensions)) {
      if (!lowerable(Collective::all_reduce, shape, choice)) continue;
      const auto n = static_cast<std::size_t>(shape.ranks);
      // Fewer counts for many dimensions, because large counts take most of the time.
      const std::vector<std::size_t> counts =
          shape.dimensions < 3 ? std::vector<std::size_t>{0, 1, 2, 5, n - 1, n, n + 1, 3 * n + 2, 6 * n}
                               : std::vector<std::size_t>{1, n - 1, 2 * n + 5};
      for (const std::size_t count : counts) {
        const int chunks = static_cast<int>(seed % 7) + 1;
        const Plan plan = plan_for(Collective::all_reduce, shape.text, shape.ranks, choice, chunks);
        ASSERT_NO_FATAL_FAILURE(expect_all_reduced(over_shared_memory(plan, seed), count, seed));
        ++seed;
      }
    }
  }
}

// Ranks would start from different models.
TEST(Lowering, BroadcastReachesEveryRankFromEveryRoot) {
  unsigned seed = 1;
  for (const Shape& shape : shapes) {
    for (const auto& choice : choices(for_broadcast, shape.dimensions)) {
      if (!lowerable(Collective::broadcast, shape, choice)) continue;
      for (int root = 0; root < shape.ranks; root += shape.dimensions < 3 ? 1 : 5) {
        const int chunks = static_cast<int>(seed % 7) + 1;
        const Plan plan = plan_for(Collective::broadcast, shape.text, shape.ranks, choice, chunks);
        ASSERT_NO_FATAL_FAILURE(expect_broadcast(plan, seed % 41, root, seed));
        ++seed;
      }
    }
  }
}

// The root would get a sum without some rank, or the ranks' pieces in the wrong places.
TEST(Lowering, ReduceHasEveryContributionAtEveryRoot) {
  unsigned seed = 1;
  for (const Shape& shape : shapes) {
    for (const auto& choice : choices(for_reduce, shape.dimensions)) {
      if (!lowerable(Collective::reduce, shape, choice)) continue;
      for (int root = 0; root < shape.ranks; root += shape.dimensions < 3 ? 1 : 5) {
        const int chunks = static_cast<int>(seed % 7) + 1;
        const Plan plan = plan_for(Collective::reduce, shape.text, shape.ranks, choice, chunks);
        ASSERT_NO_FATAL_FAILURE(expect_reduced_at(over_shared_memory(plan, seed), seed % 41, root, seed));
        ++seed;
      }
    }
  }
}

// Optimiser states that are split over ranks would be updated with wrong gradients, or lose parts.
TEST(Lowering, ReduceScatterAndAllGatherHaveEachRanksPieceInItsPlace) {
  unsigned seed = 1;
  for (const Shape& shape : shapes) {
    for (const auto& choice : choices(for_pieces, shape.dimensions)) {
      for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
        for (const std::size_t piece : {0, 1, 2, 7}) {
          const int chunks = piece == 1 ? 1 : static_cast<int>(seed % 7) + 1;
          const Plan plan = plan_for(collective, shape.text, shape.ranks, choice, chunks);
          ASSERT_NO_FATAL_FAILURE(expect_pieces(over_shared_memory(plan, seed), piece, seed));
          ++seed;
        }
      }
    }
  }
}

// An unusual combination of settings would fail on some cluster.
TEST(Lowering, RandomPlansOfUpToSixteenRanksAreRight) {
  std::minstd_rand random(11);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 3000; ++i) {
    // Groups of equal or different sizes, in a grid of up to three more dimensions.
    std::vector<int> outer;
    int groups = 1;
    for (int d = below(4); d > 0; --d) {
      const int size = 1 + below(4);
      if (groups * size > 16) break;
      outer.push_back(size);
      groups *= size;
    }
    std::vector<int> sizes(static_cast<std::size_t>(groups), 1 + below(16 / groups));
    if (below(2) == 0) {
      for (int& size : sizes) size = 1 + below(size);
    }
    const Decomposition decomposition(sizes, outer);
    const auto collective = planned_collectives()[static_cast<std::size_t>(below(5))];
    const auto possible = algorithms_of(collective);
    std::vector<Algorithm> algorithms;
    for (int d = 0; d < decomposition.dimensions(); ++d) {
      algorithms.push_back(possible[static_cast<std::size_t>(below(static_cast<int>(possible.size())))]);
    }
    if (decomposition.ragged() && !takes_ragged(collective, algorithms[0])) continue;
    const Plan plan = over_shared_memory(
        plan_for(collective, to_string(decomposition), decomposition.ranks(), algorithms, 1 + below(6)),
        static_cast<unsigned>(random()));
    const auto n = static_cast<std::size_t>(decomposition.ranks());
    const auto count = static_cast<std::size_t>(below(60));
    const int root = below(decomposition.ranks());
    switch (collective) {
      case Collective::all_reduce:
        ASSERT_NO_FATAL_FAILURE(expect_all_reduced(plan, count, static_cast<unsigned>(i)));
        break;
      case Collective::broadcast:
        ASSERT_NO_FATAL_FAILURE(expect_broadcast(plan, count, root, static_cast<unsigned>(i)));
        break;
      case Collective::reduce:
        ASSERT_NO_FATAL_FAILURE(expect_reduced_at(plan, count, root, static_cast<unsigned>(i)));
        break;
      default:
        ASSERT_NO_FATAL_FAILURE(expect_pieces(plan, count / n, static_cast<unsigned>(i)));
    }
  }
}

// A rank could leave the barrier before another has entered it.
TEST(Lowering, BarrierHearsFromEveryRank) {
  for (int ranks = 1; ranks <= 20; ++ranks) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    Schedule schedule{Collective::barrier, 0, 1, {}};
    for (int rank = 0; rank < ranks; ++rank) schedule.ranks.push_back(lower_barrier(ranks, rank));
    SymbolicRun run(schedule, 1);
    ASSERT_NO_FATAL_FAILURE(run.finish());
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      EXPECT_EQ(run.expressions().ranks(run.cell(rank, 0).expression).count(), schedule.ranks.size());
    }
    const Verdict verdict = verify(schedule);
    EXPECT_TRUE(verdict.ok) << verdict.problem;
  }
  EXPECT_EQ(lower_barrier(1000, 5).steps.size(), 3U * 10);
}

std::size_t sent_by(const Program& program) {
  std::size_t sent = 0;
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::send) sent += step.size();
  }
  return sent;
}

/// The number of elements that leave or enter each group of the first dimension.
std::vector<std::size_t> crossing(const Plan& plan, const Schedule& schedule, StepKind kind) {
  std::vector<int> group_of(plan.order.size());
  for (std::size_t position = 0; position < plan.order.size(); ++position) {
    group_of[static_cast<std::size_t>(plan.order[position])] =
        plan.decomposition.group_of(static_cast<int>(position));
  }
  std::vector<std::size_t> elements(static_cast<std::size_t>(plan.decomposition.groups()), 0);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const Step& step : schedule.ranks[rank].steps) {
      if (is_local(step.kind) || group_of[rank] == group_of[static_cast<std::size_t>(step.peer)]) continue;
      if ((step.kind == StepKind::send) == (kind == StepKind::send)) {
        elements[static_cast<std::size_t>(group_of[rank])] += step.size();
      }
    }
  }
  return elements;
}

// A decomposition would cost bandwidth: it must change where bytes go, but not how many each rank sends.
TEST(Lowering, ScatteringPlansSendTheSameBytesInEveryDecomposition) {
  const std::vector<Algorithm> scattering = {Algorithm::ring, Algorithm::halving_doubling,
                                             Algorithm::two_shot};
  for (const Shape& shape : shapes) {
    if (shape.ragged) continue;
    for (const auto& choice : choices(scattering, shape.dimensions)) {
      const auto n = static_cast<std::size_t>(shape.ranks);
      const std::size_t count = n * 3 * 10;
      const Plan plan = plan_for(Collective::all_reduce, shape.text, shape.ranks, choice, 3);
      SCOPED_TRACE(name_of(plan, count));
      for (const Program& program : lower_all(plan, count).ranks) {
        ASSERT_EQ(sent_by(program), 2 * count * (n - 1) / n);
      }
    }
  }
}

// The same for reduce_scatter and all_gather.
TEST(Lowering, PiecesOfRanksAreSentOnceInEveryDecomposition) {
  for (const Shape& shape : shapes) {
    if (shape.ragged) continue;
    for (const auto& choice : choices(for_pieces, shape.dimensions)) {
      for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
        const auto n = static_cast<std::size_t>(shape.ranks);
        const Plan plan = plan_for(collective, shape.text, shape.ranks, choice, 3);
        SCOPED_TRACE(name_of(plan, 6 * n));
        for (const Program& program : lower_all(plan, 6 * n).ranks) {
          ASSERT_EQ(sent_by(program), 6 * (n - 1));
        }
      }
    }
  }
}

// Each host's link would carry more than the other hosts' part of the data.
TEST(Lowering, ReduceScatterAndAllGatherCrossHostsOnce) {
  for (const auto& [text, ranks] : {std::pair{"4x4", 16}, {"3x5", 15}, {"4,3,2,1x4", 10}, {"2,5x2", 7}}) {
    for (const Algorithm between : for_pieces) {
      for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
        const Plan plan = plan_for(collective, text, ranks, {Algorithm::two_shot, between}, 2);
        SCOPED_TRACE(name_of(plan, 6 * static_cast<std::size_t>(ranks)));
        const Schedule schedule = lower_all(plan, 6 * static_cast<std::size_t>(ranks));
        const bool gathers = collective == Collective::all_gather;
        for (int group = 0; group < plan.decomposition.groups(); ++group) {
          const int others = ranks - plan.decomposition.group_size(group);
          const auto elements = crossing(plan, schedule, gathers ? StepKind::receive : StepKind::send);
          ASSERT_EQ(elements[static_cast<std::size_t>(group)], 6U * static_cast<std::size_t>(others));
        }
      }
    }
  }
}

// Small adjacent pieces would be sent one by one.
TEST(Lowering, PiecesOfNeighboursAreSentAsOne) {
  Plan plan = plan_for(Collective::all_gather, "4x4", 16, {Algorithm::two_shot, Algorithm::ring}, 1);
  const auto most_sends = [&] {
    std::size_t most = 0;
    for (const Program& program : lower_all(plan, 16 * 5).ranks) {
      most = std::max(
          most, static_cast<std::size_t>(std::ranges::count(program.steps, StepKind::send, &Step::kind)));
    }
    return most;
  };
  for (int i = 0; i < 16; ++i) plan.order[static_cast<std::size_t>(i)] = i % 4 * 4 + i / 4;  // round-robin
  EXPECT_EQ(most_sends(), 3U + 3U);
  std::iota(plan.order.begin(), plan.order.end(), 0);
  EXPECT_EQ(most_sends(), 3U + 3U * 4);
}

// Predictions and tables would give wrong numbers of bytes for a plan.
TEST(Lowering, OtherAlgorithmsSendWhatTheirFormulasSay) {
  const std::size_t count = 840;
  const auto lowered = [&](Collective collective, const std::string& decomposition, int ranks,
                           const std::vector<Algorithm>& algorithms) {
    Plan plan = plan_for(collective, decomposition, ranks, algorithms, 4);
    std::iota(plan.order.begin(), plan.order.end(), 0);
    return lower_all(plan, count);
  };
  for (const Program& program : lowered(Collective::all_reduce, "5", 5, {Algorithm::one_shot}).ranks) {
    EXPECT_EQ(sent_by(program), 4 * count);
  }
  // Recursive doubling.
  for (const Program& program :
       lowered(Collective::all_reduce, "2x2x2", 8, std::vector(3, Algorithm::one_shot)).ranks) {
    EXPECT_EQ(sent_by(program), 3 * count);
  }
  std::size_t sum = 0;
  const Schedule tree = lowered(Collective::all_reduce, "11", 11, {Algorithm::tree});
  for (const Program& program : tree.ranks) sum += sent_by(program);
  EXPECT_EQ(sum, 2 * 10 * count);
  EXPECT_EQ(sent_by(tree.ranks[0]), 4 * count);

  const Schedule chain = lowered(Collective::broadcast, "6", 6, {Algorithm::ring});
  for (std::size_t rank = 0; rank < 6; ++rank) EXPECT_EQ(sent_by(chain.ranks[rank]), rank == 5 ? 0 : count);
  const Schedule up = lowered(Collective::reduce, "6", 6, {Algorithm::ring});
  for (std::size_t rank = 0; rank < 6; ++rank) EXPECT_EQ(sent_by(up.ranks[rank]), rank == 0 ? 0 : count);
  const Schedule gathered = lowered(Collective::reduce, "6", 6, {Algorithm::two_shot});
  for (std::size_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(sent_by(gathered.ranks[rank]), rank == 0 ? count * 5 / 6 : count);
  }
  EXPECT_EQ(sent_by(lowered(Collective::broadcast, "6", 6, {Algorithm::one_shot}).ranks[0]), 5 * count);
  EXPECT_EQ(sent_by(lowered(Collective::broadcast, "6", 6, {Algorithm::tree}).ranks[0]), 3 * count);
  const Schedule two_shot = lowered(Collective::broadcast, "6", 6, {Algorithm::two_shot});
  for (std::size_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(sent_by(two_shot.ranks[rank]), rank == 0 ? 2 * count * 5 / 6 : count * 4 / 6);
  }
}

// One member of a double tree would send two buffers, and the tree be no faster than a single one.
TEST(Lowering, NoMemberOfADoubleTreeSendsMoreThanTheBuffer) {
  for (int ranks = 2; ranks <= 64; ++ranks) {
    const Plan plan =
        plan_for(Collective::broadcast, std::to_string(ranks), ranks, {Algorithm::double_tree}, 2);
    const std::size_t count = 4096;
    std::size_t sum = 0;
    for (const Program& program : lower_all(plan, count, ranks / 2).ranks) {
      EXPECT_LE(sent_by(program), count);
      sum += sent_by(program);
    }
    EXPECT_EQ(sum, count * static_cast<std::size_t>(ranks - 1));
    ASSERT_NO_FATAL_FAILURE(expect_broadcast(plan, 9, ranks / 2, static_cast<unsigned>(ranks)));
  }
}

// Hosts with unequal numbers of ranks would send more than the minimum, 2N(H-1)/H.
TEST(Lowering, RaggedHostsSendTheLeastOverTheirBoundaries) {
  const std::vector<Algorithm> scattering = {Algorithm::ring, Algorithm::halving_doubling,
                                             Algorithm::two_shot};
  for (const auto& [text, ranks] : {std::pair{"4,3,2,1x4", 10}, {"3,1,2x3", 6}, {"6,6,5,6x4", 23}}) {
    for (const Algorithm inside :
         {Algorithm::ring, Algorithm::halving_doubling, Algorithm::two_shot, Algorithm::tree}) {
      for (const Algorithm between : scattering) {
        const Plan plan = plan_for(Collective::all_reduce, text, ranks, {inside, between}, 2);
        const auto hosts = static_cast<std::size_t>(plan.decomposition.groups());
        const std::size_t count = 2 * hosts * 60;  // 60: divisible into every group's pieces and their cuts
        SCOPED_TRACE(name_of(plan, count));
        const Schedule schedule = lower_all(plan, count);
        for (const StepKind kind : {StepKind::send, StepKind::receive}) {
          for (const std::size_t elements : crossing(plan, schedule, kind)) {
            ASSERT_EQ(elements, 2 * count * (hosts - 1) / hosts);
          }
        }
      }
    }
  }
}

// A host's link would carry the model several times at the start of each job.
TEST(Lowering, BroadcastEntersEachHostOnce) {
  for (const auto& [text, ranks] : {std::pair{"4,3,2,1x4", 10}, {"3x5", 15}, {"2,3,2,4x2x2", 11}}) {
    for (const Algorithm inside : for_broadcast) {
      if (Decomposition::parse(text, ranks).ragged() && !takes_ragged(Collective::broadcast, inside))
        continue;
      for (const Algorithm between :
           {Algorithm::ring, Algorithm::one_shot, Algorithm::tree, Algorithm::double_tree}) {
        for (int root = 0; root < ranks; ++root) {
          std::vector<Algorithm> algorithms(std::string_view(text).ends_with("2x2") ? 3 : 2, between);
          algorithms[0] = inside;
          const Plan plan = plan_for(Collective::broadcast, text, ranks, algorithms, 3);
          SCOPED_TRACE(fmt::format("{}, root {}", name_of(plan, 50), root));
          std::vector<std::size_t> entering = crossing(plan, lower_all(plan, 50, root), StepKind::receive);
          std::sort(entering.begin(), entering.end());
          ASSERT_EQ(entering.front(), 0U);
          ASSERT_EQ(entering[1], 50U);
          ASSERT_EQ(entering.back(), 50U);
        }
      }
    }
  }
}

// Halving and doubling over all ranks would send most bytes over the slowest links, unless its large
// exchanges are between neighbours.
TEST(Lowering, FlatHalvingDoublingCrossesHostsAsLittleAsAHierarchy) {
  Plan flat = plan_for(Collective::all_reduce, "16", 16, {Algorithm::halving_doubling}, 1);
  const Schedule schedule = lower_all(flat, 1600);
  flat.decomposition = Decomposition::parse("4x4", 16);
  for (const std::size_t elements : crossing(flat, schedule, StepKind::send)) {
    EXPECT_EQ(elements, 2U * 1600 * 3 / 4);
  }
}

// Chunks would go through the dimensions one after the other, and most links would be idle.
TEST(Lowering, ChunksFollowEachOtherByOneRound) {
  const Plan plan = plan_for(Collective::all_reduce, "4x4", 16, {Algorithm::ring, Algorithm::ring}, 8);
  std::vector<int> round_of_chunk(8, 0);
  int time = -1;
  for (const Step& step : lower(plan, 3, 16 * 8).steps) {
    if (step.kind != StepKind::send) continue;
    const int now = step.chunk + round_of_chunk[step.chunk]++;
    EXPECT_GE(now, time);
    time = now;
  }
  EXPECT_EQ(time, 12 - 1 + 8 - 1);
  for (const int rounds : round_of_chunk) EXPECT_EQ(rounds, 12);
}

// A job's scratch memory would grow with the number of chunks or ranks.
TEST(Lowering, ScratchIsThatOfFourChunks) {
  for (const int chunks : {1, 3, 4, 64}) {
    const std::size_t count = 64 * 180;
    const std::size_t chunk = count / static_cast<std::size_t>(chunks);
    const std::size_t share = chunk * static_cast<std::size_t>(std::min(chunks, 4));
    const auto scratch = [&](const std::string& text, const std::vector<Algorithm>& algorithms) {
      std::size_t most = 0;
      for (const Program& program :
           lower_all(plan_for(Collective::all_reduce, text, 12, algorithms, chunks), count).ranks) {
        most = std::max(most, program.scratch);
      }
      return most;
    };
    EXPECT_EQ(scratch("12", {Algorithm::ring}), 0U);
    EXPECT_EQ(scratch("12", {Algorithm::tree}), 0U);
    EXPECT_EQ(scratch("2x2x3", {Algorithm::halving_doubling, Algorithm::two_shot, Algorithm::ring}), 0U);
    EXPECT_EQ(scratch("12", {Algorithm::two_shot}), share * 11 / 12);
    EXPECT_EQ(scratch("12", {Algorithm::halving_doubling}), share * 2 / 12);
    EXPECT_EQ(scratch("12", {Algorithm::one_shot}), share * 11);
    EXPECT_EQ(scratch("4x3", {Algorithm::two_shot, Algorithm::two_shot}), share * 3 / 4);
  }
}

// An all-reduce inside a host would read and write memory more often than necessary: the engine fuses exactly
// this sequence of steps into one pass over all ranks' memory.
TEST(Lowering, TwoShotOverSharedMemoryIsWhatReadsEachBufferOnce) {
  const int n = 4;
  Plan plan = plan_for(Collective::all_reduce, "4", n, {Algorithm::two_shot}, 1);
  plan = over_shared_memory(plan, 1);
  std::iota(plan.order.begin(), plan.order.end(), 0);
  const auto begin = [](int piece) { return 100 * static_cast<std::size_t>(piece); };
  for (int r = 0; r < n; ++r) {
    std::vector<Step> expected;
    const auto add = [&](StepKind kind, int peer, int piece) {
      expected.push_back({.kind = kind, .peer = peer, .begin = begin(piece), .end = begin(piece + 1)});
    };
    const auto after = [&](int distance) { return (r + distance) % n; };
    const auto before = [&](int distance) { return (r + n - distance) % n; };
    for (int i = 1; i < n; ++i) add(StepKind::send, after(i), after(i));
    for (int i = 1; i < n; ++i) add(StepKind::receive_reduce, before(i), r);
    add(StepKind::finish, -1, r);
    for (int i = 1; i < n; ++i) add(StepKind::send, after(i), r);
    for (int i = 1; i < n; ++i) add(StepKind::receive, before(i), before(i));

    Program program = lower(plan, r, 400);
    EXPECT_EQ(program.scratch, 0U);
    for (Step& step : program.steps) step.phase = 0;
    EXPECT_EQ(program.steps, expected) << "rank " << r;
  }
  for (const auto& [text, algorithm] :
       {std::pair{"12", Algorithm::halving_doubling}, {"7", Algorithm::two_shot}}) {
    const int ranks = std::stoi(text);
    Plan chained = over_shared_memory(plan_for(Collective::all_reduce, text, ranks, {algorithm}, 3), 1);
    for (const Program& program : lower_all(chained, 1000).ranks) EXPECT_EQ(program.scratch, 0U);
  }
}

/// Cuts a schedule on hosts of three ranks each. Messages between hosts have another maximum size than those
/// inside.
Schedule all_cut(Schedule schedule, const MessageSizes& most) {
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    schedule.ranks[rank] = cut(std::move(schedule.ranks[rank]), most,
                               [&](int peer) { return peer / 3 == static_cast<int>(rank) / 3; });
  }
  return schedule;
}

// Cutting large messages would change the result.
TEST(Lowering, CutStepsDoTheSame) {
  std::minstd_rand random(7);
  const auto pick = [&](const auto& from) { return from[random() % from.size()]; };
  for (int i = 0; i < 400; ++i) {
    const Shape& shape = pick(shapes);
    const Collective collective = planned_collectives()[static_cast<std::size_t>(i) % 5];
    std::vector<Algorithm> algorithms;
    do {
      algorithms.clear();
      for (int d = 0; d < shape.dimensions; ++d) algorithms.push_back(pick(algorithms_for(collective)));
    } while (!lowerable(collective, shape, algorithms));
    const int chunks = static_cast<int>(random() % 4) + 1;
    const Plan plan = over_shared_memory(plan_for(collective, shape.text, shape.ranks, algorithms, chunks),
                                         static_cast<unsigned>(random()));
    const std::size_t count = random() % 300 / plan.order.size() * plan.order.size();
    const MessageSizes most = {1 + random() % 40, 1 + random() % 40};
    SCOPED_TRACE(fmt::format("{}, at most {} inside a host, {} between hosts", name_of(plan, count),
                             most.inside_host, most.between_hosts));
    const int root = static_cast<int>(random()) % shape.ranks;
    const Schedule whole = lower_all(plan, count, root);
    const Schedule pieces = all_cut(whole, most);
    const Verdict verdict = verify(pieces);
    ASSERT_TRUE(verdict.ok) << verdict.problem;
    ASSERT_EQ(verdict.elements_sent, verify(whole).elements_sent);
    for (std::size_t rank = 0; rank < pieces.ranks.size(); ++rank) {
      for (const Step& step : pieces.ranks[rank].steps) {
        const bool inside = !is_local(step.kind) && step.peer / 3 == static_cast<int>(rank) / 3;
        const bool between = !is_local(step.kind) && !inside;
        const std::size_t limit = inside    ? most.inside_host
                                  : between ? most.between_hosts
                                            : std::max(most.inside_host, most.between_hosts);
        ASSERT_LE(step.size(), limit) << to_string(step);
      }
    }
    SymbolicRun run(pieces, static_cast<unsigned>(i));
    ASSERT_NO_FATAL_FAILURE(run.finish());
  }
}

// A long message would be passed on only after all of it has arrived, or reduced in several passes over
// memory.
TEST(Lowering, PiecesOfOneRangeFollowOneAnother) {
  const auto step = [](StepKind kind, int peer, std::size_t begin, std::size_t end, std::size_t source = 0) {
    return Step{.kind = kind, .peer = peer, .begin = begin, .end = end, .source = source};
  };
  using enum StepKind;
  Program program{
      {step(receive_reduce, 1, 0, 10), step(receive_reduce, 2, 0, 10), step(finish, -1, 0, 10),
       step(send, 1, 0, 10), step(send, 1, 0, 10), step(copy, -1, 10, 20, 0), step(send, 3, 0, 4)},
      20};
  const auto all_inside = [](int) { return true; };
  program = cut(program, {5, 3}, all_inside);
  EXPECT_EQ(program.steps,
            (std::vector{step(receive_reduce, 1, 0, 5), step(receive_reduce, 2, 0, 5), step(finish, -1, 0, 5),
                         step(send, 1, 0, 5), step(receive_reduce, 1, 5, 10), step(receive_reduce, 2, 5, 10),
                         step(finish, -1, 5, 10), step(send, 1, 5, 10),
                         // The second message to 1 stays behind the first one.
                         step(send, 1, 0, 5), step(send, 1, 5, 10), step(copy, -1, 10, 15, 0),
                         step(copy, -1, 15, 20, 5), step(send, 3, 0, 4)}));
  EXPECT_EQ(program.scratch, 20U);
  const Program before = program;
  program = cut(program, {5, 3}, all_inside);
  EXPECT_EQ(program, before);
  program = cut(program, {SIZE_MAX, SIZE_MAX}, all_inside);
  EXPECT_EQ(program, before);
  program.steps = {step(send, 1, 0, 11)};
  program = cut(program, {4, 3}, all_inside);
  EXPECT_EQ(program.steps, (std::vector{step(send, 1, 0, 4), step(send, 1, 4, 8), step(send, 1, 8, 11)}));
  EXPECT_THROW(cut(program, {0, 1}, all_inside), Error);
  EXPECT_THROW(cut(program, {1, 0}, all_inside), Error);
  // 1 is on the host, 2 is not.
  program.steps = {step(receive, 2, 0, 6),         step(send, 2, 0, 6),     step(send, 1, 0, 6),
                   step(receive_reduce, 1, 6, 12), step(finish, -1, 6, 12), step(finish, -1, 12, 18)};
  program = cut(program, {6, 3}, [](int peer) { return peer == 1; });
  EXPECT_EQ(program.steps,
            (std::vector{step(receive, 2, 0, 3), step(send, 2, 0, 3), step(receive, 2, 3, 6),
                         step(send, 2, 3, 6), step(send, 1, 0, 6), step(receive_reduce, 1, 6, 12),
                         step(finish, -1, 6, 12), step(finish, -1, 12, 15), step(finish, -1, 15, 18)}));
}

Step joined(Step step) {
  step.joined = true;
  return step;
}

// The engine would read and write memory once for each peer, or two ranks would round at different points.
TEST(Fuse, ReductionsOfWhatPeersHaveInMemoryAreOneRun) {
  Plan plan = over_shared_memory(plan_for(Collective::all_reduce, "4", 4, {Algorithm::two_shot}, 1), 1);
  std::iota(plan.order.begin(), plan.order.end(), 0);
  const Program program = fuse(lower(plan, 1, 400), [](int) { return true; });
  for (std::size_t i = 0; i < program.steps.size(); ++i) EXPECT_EQ(program.steps[i].joined, i >= 4 && i <= 6);
  EXPECT_EQ(program.end_of_run(3), 7U);
  EXPECT_EQ(program.begin_of_run(6), 3U);
  EXPECT_EQ(program.steps[6].kind, StepKind::finish);
  // Each rank rounds the whole sum once, whatever its position in the order.
  plan.dimensions[0].algorithm = Algorithm::one_shot;
  for (int rank = 0; rank < 4; ++rank) {
    const Program one_shot = fuse(lower(plan, rank, 400), [](int) { return true; });
    EXPECT_EQ(std::ranges::count_if(one_shot.steps, is_joined), 4) << rank;
    EXPECT_EQ(one_shot.scratch, 400U);
  }
}

TEST(Fuse, WhatCannotBeOnePassStaysAsItIs) {
  const auto step = [](StepKind kind, int peer, std::size_t begin, std::size_t end) {
    return Step{.kind = kind, .peer = peer, .begin = begin, .end = end};
  };
  using enum StepKind;
  const auto all = [](int) { return true; };
  const auto unchanged = [](const Program& program, const SharesMemory& shares) {
    return fuse(program, shares) == program;
  };
  const Program chain{{step(receive_reduce, 1, 0, 4), step(receive_reduce, 2, 0, 4), step(finish, -1, 0, 4)},
                      0};
  EXPECT_FALSE(unchanged(chain, all));
  EXPECT_TRUE(unchanged(chain, [](int peer) { return peer == 1; })) << "a part comes by the network";
  // Another step reads the value between two reductions.
  EXPECT_TRUE(unchanged(
      {{step(receive_reduce, 1, 0, 4), step(send, 3, 0, 4), step(receive_reduce, 2, 0, 4)}, 0}, all));
  // The second reduction covers only part of the range.
  EXPECT_TRUE(unchanged({{step(receive_reduce, 1, 0, 4), step(receive_reduce, 2, 0, 3)}, 0}, all));
  // The same peer twice, and two peers in different orders: messages would overtake each other.
  EXPECT_TRUE(unchanged({{step(receive_reduce, 1, 0, 4), step(receive_reduce, 1, 0, 4)}, 0}, all));
  const Program crossed = fuse({{step(receive_reduce, 1, 0, 4), step(receive_reduce, 2, 4, 8),
                                 step(receive_reduce, 2, 0, 4), step(receive_reduce, 1, 4, 8)},
                                0},
                               all);
  EXPECT_EQ(std::ranges::count_if(crossed.steps, is_joined), 1)
      << "the second run comes after the first one's messages";
  // Steps on other ranges in between do not prevent fusing.
  const Program between =
      fuse({{step(receive_reduce, 1, 0, 4), step(send, 3, 4, 8), step(receive_reduce, 2, 0, 4)}, 0}, all);
  EXPECT_EQ(between.steps, (std::vector{step(receive_reduce, 1, 0, 4), joined(step(receive_reduce, 2, 0, 4)),
                                        step(send, 3, 4, 8)}));
}

// A rank that lowers only its own program would wait for messages that the others never send.
TEST(Lowering, OneRankAloneGetsWhatItGetsAmongAll) {
  for (const auto& [text, ranks, dimensions] :
       {std::tuple{"4,3,2,1x4", 10, 2}, {"4x2x3", 24, 3}, {"7", 7, 1}}) {
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::two_shot, Algorithm::tree}) {
      for (const Collective collective : planned_collectives()) {
        if (std::ranges::count(algorithms_of(collective), algorithm) == 0) continue;
        if (Decomposition::parse(text, ranks).ragged() && !takes_ragged(collective, algorithm)) continue;
        const auto algorithms = std::vector(static_cast<std::size_t>(dimensions), algorithm);
        const Plan plan = plan_for(collective, text, ranks, algorithms, 3);
        const std::size_t count = 10 * static_cast<std::size_t>(ranks);
        const Schedule schedule = lower_all(plan, count, ranks - 1);
        EXPECT_EQ(schedule.collective, collective);
        EXPECT_EQ(schedule.root, ranks - 1);
        EXPECT_EQ(schedule.count, count);
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(lower(plan, rank, count, ranks - 1), schedule.ranks[static_cast<std::size_t>(rank)]);
        }
      }
    }
  }
}

// A job of thousands of ranks would spend its time and memory on schedules.
TEST(Lowering, ARanksStepsAreItsOwnAlone) {
  const int ranks = 1 << 16;
  const auto steps = [&](const std::string& text, const std::vector<Algorithm>& algorithms) {
    return lower(plan_for(Collective::all_reduce, text, ranks, algorithms, 1), 5, std::size_t{1} << 30)
        .steps.size();
  };
  EXPECT_EQ(steps("65536", {Algorithm::ring}), 4U * (ranks - 1) + 1);
  EXPECT_EQ(steps("65536", {Algorithm::halving_doubling}), 4U * 16 + 1);
  EXPECT_LE(steps("65536", {Algorithm::tree}), 4U * 16 + 1);
  EXPECT_EQ(steps("16x4096", {Algorithm::two_shot, Algorithm::halving_doubling}),
            2U * 15 + 2 * 15 + 15 + 4 * 12 + 1);
}

// Reports would name the wrong dimension.
TEST(Lowering, StepsBelongToThePhasesOfThePlan) {
  const auto phases = [](Collective collective, const std::vector<Algorithm>& algorithms) {
    return phases_of(plan_for(collective, "2x1x3x2", 12, algorithms, 1));
  };
  using enum PhaseKind;
  EXPECT_EQ(phases(Collective::all_reduce,
                   {Algorithm::ring, Algorithm::ring, Algorithm::tree, Algorithm::one_shot}),
            (std::vector<Phase>{
                {reduce_scatter, 0}, {reduce, 2}, {all_reduce, 3}, {broadcast, 2}, {all_gather, 0}}));
  EXPECT_EQ(phases(Collective::broadcast,
                   {Algorithm::two_shot, Algorithm::ring, Algorithm::double_tree, Algorithm::one_shot}),
            (std::vector<Phase>{{scatter, 0}, {broadcast, 3}, {broadcast, 2}, {all_gather, 0}}));
  const std::vector<Algorithm> of_pieces = {Algorithm::two_shot, Algorithm::ring, Algorithm::ring,
                                            Algorithm::halving_doubling};
  EXPECT_EQ(phases(Collective::reduce_scatter, of_pieces),
            (std::vector<Phase>{{reduce_scatter, 0}, {reduce_scatter, 2}, {reduce_scatter, 3}}));
  EXPECT_EQ(phases(Collective::all_gather, of_pieces),
            (std::vector<Phase>{{all_gather, 3}, {all_gather, 2}, {all_gather, 0}}));
  EXPECT_EQ(
      phases(Collective::reduce, {Algorithm::two_shot, Algorithm::ring, Algorithm::ring, Algorithm::tree}),
      (std::vector<Phase>{{reduce_scatter, 0}, {reduce, 2}, {reduce, 3}, {gather, 0}}));
  EXPECT_TRUE(phases_of(plan_for(Collective::all_reduce, "1", 1, {Algorithm::tree}, 1)).empty());

  for (const Collective collective : planned_collectives()) {
    const bool has_pieces = collective == Collective::reduce_scatter || collective == Collective::all_gather;
    const Plan plan = plan_for(
        collective, "2x1x3x2", 12,
        has_pieces ? of_pieces
                   : std::vector{Algorithm::two_shot, Algorithm::ring, Algorithm::tree, Algorithm::one_shot},
        2);
    const std::vector<Phase> all = phases_of(plan);
    for (int position = 0; position < 12; ++position) {
      const int rank = plan.order[static_cast<std::size_t>(position)];
      for (const Step& step : lower(plan, rank, 108).steps) {
        ASSERT_LT(step.phase, all.size());
        if (is_local(step.kind)) continue;
        const auto peer = std::find(plan.order.begin(), plan.order.end(), step.peer) - plan.order.begin();
        const int distance = std::abs(static_cast<int>(peer) - position);
        EXPECT_EQ(all[step.phase].dimension, distance == 1 ? 0 : distance == 6 ? 3 : 2) << to_string(step);
      }
    }
  }
}

// An impossible plan, written by another tool, would be executed.
TEST(Lowering, RefusesWhatDoesNotExist) {
  const Plan plan = plan_for(Collective::all_reduce, "2x2", 4, {Algorithm::ring, Algorithm::ring}, 1);
  const auto message_of = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message_of([&] { lower(plan, 4, 1); }).find("found rank 4, expected 0 to 3"), std::string::npos);
  EXPECT_NE(message_of([&] { lower(plan, -1, 1); }).find("found rank -1"), std::string::npos);
  EXPECT_NE(message_of([&] { lower(plan, 0, 1, 7); }).find("found root 7"), std::string::npos);
  EXPECT_NE(message_of([&] { lower_all(plan, 1, -1); }).find("found root -1"), std::string::npos);
  EXPECT_NE(message_of([&] { lower_barrier(3, 3); }).find("found rank 3 of 3"), std::string::npos);
  EXPECT_NE(message_of([&] { lower_barrier(0, 0); }).find("rank"), std::string::npos);
  Plan repeated = plan;
  repeated.order[0] = repeated.order[1];
  EXPECT_THROW(lower(repeated, 0, 1), Error);
  EXPECT_THROW(lower_all(repeated, 1), Error);
  EXPECT_THROW(
      lower(plan_for(Collective::all_reduce, "3,1x2", 4, {Algorithm::one_shot, Algorithm::ring}, 1), 0, 1),
      Error);
  EXPECT_THROW(lower(plan_for(Collective::all_reduce, "4", 4, {Algorithm::double_tree}, 1), 0, 1), Error);
  EXPECT_THROW(lower(plan_for(Collective::broadcast, "4", 4, {Algorithm::halving_doubling}, 1), 0, 1), Error);
  EXPECT_THROW(lower(plan_for(Collective::all_reduce, "4", 4, {Algorithm::ring}, 65), 0, 1), Error);
  EXPECT_THROW(lower(plan_for(Collective::reduce, "4", 4, {Algorithm::double_tree}, 1), 0, 1), Error);
  EXPECT_THROW(lower(plan_for(Collective::reduce, "4", 4, {Algorithm::halving_doubling}, 1), 0, 1), Error);
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
    EXPECT_THROW(lower(plan_for(collective, "4", 4, {Algorithm::tree}, 1), 0, 4), Error);
    EXPECT_THROW(lower(plan_for(collective, "4", 4, {Algorithm::one_shot}, 1), 0, 4), Error);
    const Plan of_pieces = plan_for(collective, "4", 4, {Algorithm::ring}, 1);
    for (const auto& call : std::vector<std::function<void()>>{[&] { lower(of_pieces, 0, 7); },
                                                               [&] { lower_all(of_pieces, 7); }}) {
      EXPECT_NE(message_of(call).find("7 elements, expected a multiple of 4"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace ddl::topology
