// Properties of every plan on every machine, tested on random ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "ddl/topology/physical_bound.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/planner.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/simulator.hpp"
#include "ddl/topology/verifier.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/random_cluster.hpp"

namespace ddl::topology {
namespace {

using Random = std::mt19937;

// Sanitizers slow everything down about tenfold.
#ifdef DDL_SANITIZED
constexpr int slowness = 8;
#else
constexpr int slowness = 1;
#endif

int below(Random& random, int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

std::string name_of(const Plan& plan) {
  std::string text = fmt::format("{} {}", to_string(plan.collective), to_string(plan.decomposition));
  for (const PlanDimension& dimension : plan.dimensions) {
    text += fmt::format(" {}", to_string(dimension.algorithm));
  }
  return text + fmt::format(", {} chunks, {} orders, {}", plan.chunks, 1 + plan.further_orders.size(),
                            plan.order_name);
}

std::vector<std::uint64_t> sent_by_rank(const Schedule& schedule) {
  std::vector<std::uint64_t> sent;
  for (const Program& program : schedule.ranks) {
    std::uint64_t elements = 0;
    for (const Step& step : program.steps) {
      if (step.kind == StepKind::send) elements += step.size();
    }
    sent.push_back(elements);
  }
  return sent;
}

/// The number of elements that all ranks together send in an all-reduce of `count` elements, by the formulas
/// of `Algorithm`. A group of p moves each element p-1 times up and p-1 times down, or p(p-1) times with
/// one_shot. After one_shot dimensions all their members continue, so later dimensions work on as many copies
/// of the buffer.
std::uint64_t all_reduce_elements(const Plan& plan, std::size_t count) {
  const Decomposition& grid = plan.decomposition;
  std::uint64_t total = 0;
  std::uint64_t copies = 1;
  auto groups = static_cast<std::uint64_t>(grid.groups());
  for (int d = 0; d < grid.dimensions(); ++d) {
    const bool is_one_shot = plan.dimensions[static_cast<std::size_t>(d)].algorithm == Algorithm::one_shot;
    if (d == 0) {
      for (int group = 0; group < grid.groups(); ++group) {
        const auto p = static_cast<std::uint64_t>(grid.group_size(group));
        total += (p - 1) * (is_one_shot ? p : 2) * count;
      }
    } else {
      const auto p = static_cast<std::uint64_t>(grid.size(d));
      groups /= p;
      total += groups * copies * (p - 1) * (is_one_shot ? p : 2) * count;
    }
    if (is_one_shot) copies *= static_cast<std::uint64_t>(grid.size(d));
  }
  return total;
}

void expect_bytes(const Plan& plan, const Schedule& schedule) {
  const auto n = static_cast<std::uint64_t>(plan.decomposition.ranks());
  const std::uint64_t count = schedule.count;
  const std::vector<std::uint64_t> sent = sent_by_rank(schedule);
  const std::uint64_t total = std::accumulate(sent.begin(), sent.end(), std::uint64_t{0});
  if (plan.collective == Collective::broadcast) {
    ASSERT_EQ(total, (n - 1) * count) << "each rank but the root is to get each element once";
    return;
  }
  if (has_pieces(plan.collective)) {
    ASSERT_EQ(total, (n - 1) * count)
        << "each rank is to get, or give, each element that is not its own once";
    if (plan.decomposition.ragged()) return;
    for (const std::uint64_t elements : sent) ASSERT_EQ(elements, count / n * (n - 1));
    return;
  }
  if (plan.collective == Collective::reduce) {
    ASSERT_GE(total, (n - 1) * count) << "each rank but the root is to give each element once";
    const auto is_two_shot = [](const auto& d) { return d.algorithm == Algorithm::two_shot; };
    if (std::ranges::none_of(plan.dimensions, is_two_shot)) {
      ASSERT_EQ(total, (n - 1) * count);
    }
    return;
  }
  ASSERT_EQ(total, all_reduce_elements(plan, count));
  const std::uint64_t parts = static_cast<std::uint64_t>(plan.chunks) * (1 + plan.further_orders.size());
  if (plan.decomposition.ragged() || count % (n * parts) != 0) return;
  const auto& dimensions = plan.dimensions;
  if (std::ranges::all_of(dimensions,
                          [](const auto& d) { return scatters(Collective::all_reduce, d.algorithm); })) {
    for (const std::uint64_t elements : sent) ASSERT_EQ(elements, 2 * count / n * (n - 1));
  } else if (std::ranges::none_of(dimensions, [](const auto& d) { return d.algorithm == Algorithm::tree; })) {
    for (const std::uint64_t elements : sent) ASSERT_EQ(elements, total / n) << "all ranks do the same";
  }
}

void expect_json_returns(const Plan& plan) {
  ASSERT_EQ(plan_from_json(to_json(plan), "plan"), plan);
  ASSERT_EQ(hash(plan_from_json(to_json(plan), "plan")), hash(plan));
}

void expect_verified(const Plan& plan, std::size_t count, int root) {
  SCOPED_TRACE(fmt::format("{}, {} elements, root {}", name_of(plan), count, root));
  ASSERT_NO_THROW(require_valid(plan));
  const Schedule schedule = lower_all(plan, count, root);
  const Verdict verdict = verify(schedule);
  ASSERT_TRUE(verdict.ok) << verdict.problem;
  const std::vector<std::uint64_t> sent = sent_by_rank(schedule);
  ASSERT_EQ(verdict.elements_sent, std::accumulate(sent.begin(), sent.end(), std::uint64_t{0}));
  expect_bytes(plan, schedule);
}

/// A random grid of `ranks` ranks; with `ragged`, the first dimension has groups of any sizes.
Decomposition random_decomposition(int ranks, bool ragged, Random& random) {
  if (ragged && ranks >= 3) {
    const int groups = 2 + below(random, std::min(ranks - 1, 8));
    std::vector<int> sizes(static_cast<std::size_t>(groups), 1);
    for (int i = groups; i < ranks; ++i) ++sizes[static_cast<std::size_t>(below(random, groups))];
    const Decomposition above = random_decomposition(groups, false, random);
    std::vector<int> outer{above.size(0)};
    outer.insert(outer.end(), above.outer().begin(), above.outer().end());
    return {sizes, outer};
  }
  std::vector<int> sizes;
  int left = ranks;
  while (left > 1 && (sizes.empty() || below(random, 4) != 0)) {
    std::vector<int> divisors;
    for (int d = 2; d <= left; ++d) {
      if (left % d == 0) divisors.push_back(d);
    }
    sizes.push_back(divisors[static_cast<std::size_t>(below(random, static_cast<int>(divisors.size())))]);
    left /= sizes.back();
  }
  if (left > 1 || sizes.empty()) sizes.push_back(left);
  if (below(random, 8) == 0) sizes.insert(sizes.begin() + below(random, static_cast<int>(sizes.size())), 1);
  return {{sizes[0]}, {sizes.begin() + 1, sizes.end()}};
}

Collective random_collective(Random& random) {
  const auto all = planned_collectives();
  return all[random() % all.size()];
}

/// The nearest count to `count` for which the collective can be lowered.
std::size_t fitting(Collective collective, std::size_t count, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return has_pieces(collective) ? (count + n - 1) / n * n : count;
}

/// Adds the wire to some of the dimensions that can have it.
void add_wire(Plan& plan, DataType wire, Random& random) {
  if (plan.collective != Collective::all_reduce && plan.collective != Collective::reduce_scatter) return;
  plan.type = DataType::f32;
  for (PlanDimension& dimension : plan.dimensions) {
    const bool can = dimension.carrier != Carrier::shared_memory && dimension.carrier != Carrier::cuda_ipc;
    if (can && below(random, 3) != 0) dimension.wire = wire;
  }
}

Plan random_plan(int ranks, Random& random) {
  Plan plan;
  plan.collective = random_collective(random);
  plan.decomposition = random_decomposition(ranks, below(random, 3) == 0, random);
  plan.dimensions.clear();
  for (int d = 0; d < plan.decomposition.dimensions(); ++d) {
    const bool is_ragged = d == 0 && plan.decomposition.ragged();
    const auto possible = algorithms_of(plan.collective);
    Algorithm algorithm;
    do {
      algorithm = possible[random() % possible.size()];
    } while (is_ragged && !takes_ragged(plan.collective, algorithm));
    plan.dimensions.push_back({algorithm, static_cast<Carrier>(below(random, 5))});
  }
  plan.order.resize(static_cast<std::size_t>(ranks));
  std::iota(plan.order.begin(), plan.order.end(), 0);
  std::shuffle(plan.order.begin(), plan.order.end(), random);
  if (below(random, 3) == 0) {
    plan.further_orders.assign(static_cast<std::size_t>(below(random, 5)), plan.order);
    for (auto& order : plan.further_orders) std::shuffle(order.begin(), order.end(), random);
  }
  plan.order_name = "shuffled";
  plan.chunks = below(random, 2) == 0 ? 1 << below(random, 7) : 1 + below(random, 64);
  plan.bytes = random();
  plan.type = static_cast<DataType>(below(random, 7));
  if (below(random, 2) == 0) add_wire(plan, below(random, 2) == 0 ? DataType::bf16 : DataType::f16, random);
  plan.mode = static_cast<Mode>(below(random, 6));
  plan.predicted_us = static_cast<double>(random()) / 3;
  plan.phase_us.resize(phases_of(plan).size());
  for (double& us : plan.phase_us) us = 1.0 / (1 + below(random, 1000));
  plan.topology_hash = (std::uint64_t{random()} << 32) + random();
  if (below(random, 4) == 0) plan.notes = {"a \"note\" \\ \n\t\x01", "caf\xc3\xa9"};
  return plan;
}

/// A random count: divisible, or one that leaves pieces empty; small for many chunks, to limit the steps.
std::size_t random_count(const Plan& plan, Random& random) {
  const auto n = static_cast<std::size_t>(plan.decomposition.ranks());
  if (has_pieces(plan.collective)) return n * static_cast<std::size_t>(below(random, 5));
  switch (below(random, 4)) {
    case 0:
      return static_cast<std::size_t>(below(random, 4));
    case 1:
      if (n * static_cast<std::size_t>(plan.chunks) <= 256) return n * static_cast<std::size_t>(plan.chunks);
      [[fallthrough]];
    case 2:
      return n;
    default:
      return static_cast<std::size_t>(below(random, 3 * static_cast<int>(n))) + 1;
  }
}

// A plan that `require_valid` accepts, from a file or for a requested decomposition, would give wrong
// results.
TEST(PlanProperty, AnyValidPlanVerifiesAndSendsWhatItsFormulasSay) {
  Random random(1);
  for (int trial = 0; trial < 3000 / slowness; ++trial) {
    const int ranks = 1 + below(random, trial % 5 == 0 ? 64 : 18);
    const Plan plan = random_plan(ranks, random);
    SCOPED_TRACE(trial);
    expect_json_returns(plan);
    if (HasFatalFailure()) return;
    expect_verified(plan, random_count(plan, random), below(random, ranks));
    if (HasFatalFailure()) return;
  }
}

TEST(PlanProperty, TopologiesReturnFromJson) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Topology topology = random_cluster(seed, 64);
    ASSERT_EQ(topology_from_json(to_json(topology), "cluster"), topology) << seed;
  }
}

/// The properties of a plan that determine whether its schedule is right, whatever the order of ranks.
using Form = std::tuple<Collective, std::string, std::vector<Algorithm>, int, std::size_t>;
Form form_of(const Plan& plan) {
  std::vector<Algorithm> algorithms;
  for (const PlanDimension& dimension : plan.dimensions) algorithms.push_back(dimension.algorithm);
  return {plan.collective, to_string(plan.decomposition), algorithms, plan.chunks,
          plan.further_orders.size()};
}

class Machines {
 public:
  explicit Machines(unsigned seed) : random_(seed) {}

  /// Makes a random topology with ranks; some are large.
  void next(int most) {
    topology_.emplace(random_cluster(static_cast<unsigned>(random_()), most));
    placement_ = random_placement(*topology_, static_cast<unsigned>(random_()));
    planner_.emplace(*topology_, placement_);
  }

  [[nodiscard]] const Topology& topology() const { return *topology_; }
  [[nodiscard]] const Placement& placement() const { return placement_; }
  [[nodiscard]] int ranks() const { return static_cast<int>(placement_.size()); }
  Planner& planner() { return *planner_; }
  Random& random() { return random_; }

  PlanRequest request() {
    PlanRequest request;
    request.collective = random_collective(random_);
    request.bytes = std::uint64_t{1} << below(random_, 31);
    const bool sums =
        request.collective == Collective::all_reduce || request.collective == Collective::reduce_scatter;
    if (sums && below(random_, 3) == 0) request.wire = DataType::bf16;
    return request;
  }

 private:
  Random random_;
  std::optional<Topology> topology_;
  Placement placement_;
  std::optional<Planner> planner_;
};

/// Verifies a plan unless one of the same form has been verified.
class Verified {
 public:
  explicit Verified(Random& random) : random_(random) {}

  void check(const Plan& plan) {
    ++plans_;
    if (!forms_.insert(form_of(plan)).second) return;
    expect_verified(plan, random_count(plan, random_), below(random_, plan.decomposition.ranks()));
  }
  [[nodiscard]] std::size_t plans() const { return plans_; }
  [[nodiscard]] std::size_t forms() const { return forms_.size(); }

 private:
  Random& random_;
  std::set<Form> forms_;
  std::size_t plans_ = 0;
};

// A candidate would be wrong, and chosen for some model or machine.
TEST(PlanProperty, EveryCandidateOfUpTo16RanksVerifies) {
  Machines machines(2);
  Verified verified(machines.random());
  for (int trial = 0; trial < 64 / slowness; ++trial) {
    SCOPED_TRACE(trial);
    machines.next(1 + trial % 16);
    for (const Plan& plan : machines.planner().candidates(machines.request())) {
      ASSERT_EQ(plan.decomposition.ranks(), machines.ranks());
      verified.check(plan);
      if (HasFatalFailure()) return;
    }
  }
  fmt::print("{} candidates, {} forms verified\n", verified.plans(), verified.forms());
  EXPECT_GT(verified.forms(), 100U);
}

TEST(PlanProperty, CandidatesOfManyRanksVerify) {
  Machines machines(3);
  Verified verified(machines.random());
  for (int trial = 0; trial < 12; trial += slowness) {
    SCOPED_TRACE(trial);
    machines.next(20 + 4 * trial);
    const std::vector<Plan> candidates = machines.planner().candidates(machines.request());
    ASSERT_FALSE(candidates.empty());
    for (int i = 0; i < 25; ++i) {
      verified.check(candidates[machines.random()() % candidates.size()]);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(verified.forms(), 20U);
}

TEST(PlanProperty, TheChosenPlanVerifiesComesBackFromJsonAndIsNearTheFirstCandidate) {
  Machines machines(4);
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    machines.next(1 + below(machines.random(), 64));
    PlanRequest request = machines.request();
    for (const Mode mode : {Mode::explore, Mode::rings, Mode::nccl, Mode::nccl_per_dimension,
                            Mode::scatter_gather, Mode::mpi}) {
      request.mode = mode;
      SCOPED_TRACE(to_string(mode));
      const Plan plan = machines.planner().choose(request);
      ASSERT_EQ(plan.collective, request.collective);
      ASSERT_EQ(plan.bytes, request.bytes);
      ASSERT_EQ(plan.decomposition.ranks(), machines.ranks());
      ASSERT_EQ(plan.phase_us.size(), phases_of(plan).size());
      ASSERT_GE(plan.predicted_us, 0);
      expect_json_returns(plan);
      const std::size_t count = random_count(plan, machines.random());
      const int root = below(machines.random(), machines.ranks());
      expect_verified(plan, count, root);
      if (HasFatalFailure()) return;
      const Verdict run =
          verify(schedule_to_run(plan, count, root, machines.topology(), machines.placement()));
      ASSERT_TRUE(run.ok) << "what runs: " << run.problem;
      if (machines.ranks() <= 16 && mode == Mode::explore) {
        // Simulation may prefer another candidate among those with similar predictions.
        const auto candidates = machines.planner().candidates(request);
        ASSERT_LE(plan.predicted_us, 1.31 * candidates.at(0).predicted_us);
        ASSERT_NE(std::ranges::find(candidates, plan), candidates.end());
      }
    }
  }
}

// Simulated times below the physical bound would promise speeds that no machine reaches.
TEST(PlanProperty, NoSimulationBeatsThePhysicalBound) {
  Machines machines(5);
  int simulated = 0;
  double closest = 1e9;
  for (int trial = 0; trial < 150; ++trial) {
    SCOPED_TRACE(trial);
    machines.next(2 + below(machines.random(), 11));
    if (machines.ranks() < 2) continue;
    const PlanRequest request = machines.request();
    const std::uint64_t count =
        fitting(request.collective, std::max<std::uint64_t>(request.bytes / 4, 1), machines.ranks());
    const double bound =
        PhysicalBound(machines.topology(), machines.placement()).us(request.collective, count * 4);
    ASSERT_GT(bound, 0);
    const std::vector<Plan> candidates = machines.planner().candidates(request);
    for (int i = 0; i < 5; ++i) {
      Plan plan = i == 0 ? candidates.front() : candidates[machines.random()() % candidates.size()];
      if (plan.chunks > 8) plan.chunks = 8;
      SCOPED_TRACE(name_of(plan));
      const Schedule schedule = lower_all(plan, count, below(machines.random(), machines.ranks()));
      const Simulation simulation = simulate(machines.topology(), machines.placement(), schedule);
      ASSERT_GE(simulation.total_us, bound * (1 - 1e-9)) << count * 4 << " bytes";
      closest = std::min(closest, simulation.total_us / bound);
      ++simulated;
    }
  }
  EXPECT_GT(simulated, 400);
  EXPECT_LT(closest, 1.5) << "the bound bounds nothing";
}

}  // namespace
}  // namespace ddl::topology
