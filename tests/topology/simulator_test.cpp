// The simulator. If its times were wrong, users would choose wrong plans and could trust no picture. Known
// times are checked exactly, and general properties on random graphs.
#include "ddl/topology/simulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ddl/topology/physical_bound.hpp"
#include "ddl/topology/program.hpp"
#include "topology/graph_support.hpp"
#include "topology/program/passes.hpp"
#include "topology/program_support.hpp"
#include "topology/random_graph.hpp"

namespace ddl::topology {
namespace {

constexpr double exact = 1e-7;  // relative

/// The rates in bytes/us of a rank of the presets `host` and `ethernet`: copying from another rank's memory,
/// and only reading or only writing it.
constexpr double copy_rate = 24e3;
constexpr double pass_rate = 48e3;

void expect_time(double found, double expected) { EXPECT_NEAR(found, expected, exact * expected); }

/// An all-reduce in rank order. `grid`: such as "4x2".
Plan plan_for(int ranks, const std::string& grid, std::vector<Algorithm> algorithms, int chunks = 1) {
  Plan plan;
  plan.decomposition = Decomposition::parse(grid, ranks);
  plan.dimensions.clear();
  for (const Algorithm algorithm : algorithms) plan.dimensions.push_back({algorithm, Carrier::network});
  plan.order.resize(static_cast<std::size_t>(ranks));
  std::iota(plan.order.begin(), plan.order.end(), 0);
  plan.chunks = chunks;
  return plan;
}

Schedule by_hand(std::vector<std::vector<Step>> steps) {
  Schedule schedule;
  schedule.count = 1U << 20U;
  for (auto& of_rank : steps) schedule.ranks.push_back({std::move(of_rank), 0});
  return schedule;
}

/// Options with elements of one byte in which only the transfer of bytes takes time.
SimulationOptions bytes_alone() {
  SimulationOptions options;
  options.element_bytes = 1;
  options.cost = {0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  return options;
}

Simulation run(const Topology& topology, const Schedule& schedule, SimulationOptions options = {}) {
  options.keep_events = true;
  return simulate(topology, place_by_host(topology, static_cast<int>(schedule.ranks.size())), schedule,
                  options);
}

const SimulatedEvent& event_of(const Simulation& simulation, int rank, std::uint32_t step) {
  return *std::ranges::find_if(simulation.events, [&](const SimulatedEvent& event) {
    return event.rank == rank && event.step == step;
  });
}

/// Packages in a row, joined by links of these bandwidths, with `devices[i]` CPU ranks on package i, whose
/// links are never the bottleneck.
Topology row(const std::vector<int>& devices, const std::vector<double>& bandwidths,
             Duplex duplex = Duplex::full, double latency = 0) {
  std::vector<Node> nodes;
  std::vector<Link> links;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    nodes.push_back({fmt::format("p{}", i), NodeKind::package, 0});
  }
  for (std::size_t i = 0; i < bandwidths.size(); ++i) {
    links.push_back(
        {static_cast<int>(i), static_cast<int>(i) + 1, LinkKind::socket, bandwidths[i], latency, duplex});
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (int device = 0; device < devices[i]; ++device) {
      links.push_back({static_cast<int>(nodes.size()), static_cast<int>(i), LinkKind::memory, 1000, 0});
      nodes.push_back({fmt::format("d{}", nodes.size()), NodeKind::cpu, 0});
    }
  }
  return {{"h"}, nodes, links};
}

void expect_contiguous(const Simulation& simulation) {
  ASSERT_FALSE(simulation.critical.empty());
  double time = 0;
  for (const SimulatedEvent& event : simulation.critical) {
    EXPECT_EQ(event.start_us, time);
    EXPECT_GE(event.end_us, event.start_us);
    time = event.end_us;
  }
  EXPECT_EQ(time, simulation.total_us);
}

// --- DESIGN's closed form ---

TEST(Simulator, RingTakesTheClosedFormsTime) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    const Topology topology = make_preset(fmt::format("host:{}", ranks));
    const std::size_t count = 720720;  // divisible by all numbers up to 16
    const auto simulation =
        run(topology, lower_all(plan_for(ranks, std::to_string(ranks), {Algorithm::ring}), count));
    const double n = ranks;
    const double bytes = 4 * count;
    const CostModel cost;
    const double alpha = cost.step_overhead + 2 * 0.1;
    const double expected =
        (n - 1) * (2 * alpha + bytes / n / pass_rate + bytes / n / (ranks == 2 ? pass_rate : copy_rate)) +
        cost.reduction_us(NodeKind::cpu, bytes) * (1 - 1 / n);
    expect_time(simulation.total_us, expected);
    EXPECT_EQ(simulation.transfers, static_cast<std::uint64_t>(2 * (ranks - 1) * ranks));
  }
}

// A reduction in one pass over all ranks' memory would be simulated with one pass per rank.
TEST(Simulator, TwoShotOverSharedMemoryReadsAndWritesEachBufferOnce) {
  for (const int ranks : {2, 4, 8}) {
    const Topology topology = make_preset(fmt::format("host:{}", ranks));
    Plan plan = plan_for(ranks, std::to_string(ranks), {Algorithm::two_shot});
    plan.dimensions[0].carrier = Carrier::shared_memory;
    const std::size_t count = 1U << 22U;
    Schedule schedule = lower_all(plan, count);
    for (Program& program : schedule.ranks) program = fuse(std::move(program), [](int) { return true; });
    const auto simulation = run(topology, schedule);
    const double n = ranks;
    const double bytes = 4 * count;
    const CostModel cost;
    const double passes = 2 * bytes * (n - 1) / n / pass_rate + cost.reduction_us(NodeKind::cpu, bytes / n);
    const double waits = 2 * (n - 1) * cost.step_overhead + 2 * 0.2;
    EXPECT_GE(simulation.total_us, passes);
    EXPECT_LE(simulation.total_us, passes + waits + 0.1);
  }
}

// Plans would send hundreds of small messages at once to a host with one NIC and few cores.
TEST(Simulator, MessagesBetweenCpusTakeTurnsOnTheNic) {
  const Topology topology = make_preset("ethernet:2x4@1gbit");
  SimulationOptions options = bytes_alone();
  options.cost.cpu_network_message = 5;
  const auto total = [&](int pairs) {
    std::vector<std::vector<Step>> steps(8);
    for (int i = 0; i < pairs; ++i) {
      steps[static_cast<std::size_t>(i)].push_back(send(4 + i, 0, 1250));
      steps[static_cast<std::size_t>(4 + i)].push_back(receive(i, 0, 1250));
    }
    return run(topology, by_hand(steps), options).total_us;
  };
  expect_time(total(1), 25.2 + 10 + 5);
  expect_time(total(4), 25.2 + 4 * (10 + 5));
  options.cost.cpu_network_message = -1;
  EXPECT_THROW(total(1), Error);
}

struct Hierarchy {
  std::string topology;
  std::string grid;
  int ranks;
  // For each dimension: latency of a route, GB/s of a single flow, and flows behind a NIC.
  std::vector<double> latency;
  std::vector<double> bandwidth;
  std::vector<double> flows;
};

TEST(Simulator, HierarchyTakesTheClosedFormsTimeWithFlowsBehindNics) {
  const std::vector<Hierarchy> cases = {
      // In memory, reducing takes a pass, and gathering a copy; between two ranks gathering takes a pass.
      {"ethernet:4x4@10gbit", "4x4", 16, {0.2, 25.2}, {2 / (1.0 / 24 + 1.0 / 48), 1.25}, {1, 4}},
      {"ethernet:2x8@100gbit", "8x2", 16, {0.2, 25.2}, {2 / (1.0 / 24 + 1.0 / 48), 12.5}, {1, 8}},
      {"ethernet:8x2@1gbit", "2x8", 16, {0.2, 25.2}, {48, 0.125}, {1, 2}},
      {"dgx_h100:4", "8x4", 32, {0.6, 2 * 2.35}, {450, 50}, {1, 1}},
      {"dgx2:2", "16x2", 32, {0.6, 2 * 2.35}, {150, 12.5}, {1, 2}},
  };
  for (const Hierarchy& c : cases) {
    SCOPED_TRACE(c.topology);
    const Topology topology = make_preset(c.topology);
    const Plan plan = plan_for(c.ranks, c.grid, {Algorithm::ring, Algorithm::ring});
    const std::size_t count = 1U << 20U;
    const auto simulation = run(topology, lower_all(plan, count));
    const CostModel cost;
    const double bytes = 4 * count;
    const NodeKind device = topology.nodes()[static_cast<std::size_t>(topology.devices()[0])].kind;
    double expected = 0;
    double product = 1;
    for (int i = 0; i < 2; ++i) {
      const auto d = static_cast<std::size_t>(i);
      const double p = plan.decomposition.size(i);
      product *= p;
      expected += 2 * (p - 1) * (cost.step_overhead + c.latency[d]) +
                  2 * bytes * (p - 1) / product * c.flows[d] / (c.bandwidth[d] * 1e3);
      if (i == 1 && device == NodeKind::cpu) expected += 2 * (p - 1) * c.flows[d] * cost.cpu_network_message;
    }
    expected += cost.reduction_us(device, bytes) * (1 - 1.0 / c.ranks);
    expect_time(simulation.total_us, expected);
  }
}

TEST(Simulator, ChunksHideTheFasterDimension) {
  const Topology topology = make_preset("ethernet:4x4@10gbit");
  const std::size_t count = 1U << 24U;
  const auto total = [&](int chunks) {
    return run(topology, lower_all(plan_for(16, "4x4", {Algorithm::ring, Algorithm::ring}, chunks), count))
        .total_us;
  };
  const double network_alone = 4.0 * count * 2 * 3 / 4 / 1.25e3;
  EXPECT_LT(total(16), total(1));
  EXPECT_GT(total(16), network_alone);
  EXPECT_LT(total(16), 1.1 * network_alone);
}

// --- Sharing ---

TEST(Simulator, FlowsShareMaxMinFairly) {
  // Flows 0 -> 1 and 2 -> 3 use one link each, of 10 and 20 GB/s; flow 4 -> 5 uses both.
  const Topology topology = [] {
    const auto package = [](int i) { return Node{fmt::format("p{}", i), NodeKind::package, 0}; };
    std::vector<Node> nodes = {package(0), package(1), package(2)};
    std::vector<Link> links = {{0, 1, LinkKind::socket, 10, 0}, {1, 2, LinkKind::socket, 20, 0}};
    for (const int at : {0, 1, 1, 2, 0, 2}) {
      links.push_back({static_cast<int>(nodes.size()), at, LinkKind::memory, 1000, 0});
      nodes.push_back({fmt::format("d{}", nodes.size()), NodeKind::cpu, 0});
    }
    return Topology({"h"}, nodes, links);
  }();
  const auto simulation = run(topology,
                              by_hand({{send(1, 0, 250000)},
                                       {receive(0, 0, 250000)},
                                       {send(3, 0, 1200000)},
                                       {receive(2, 0, 1200000)},
                                       {send(5, 0, 500000)},
                                       {receive(4, 0, 500000)}}),
                              bytes_alone());
  // Rates are 5, 15 and 5 GB/s until the first flow ends, then 10 each, then 20 for the last one.
  expect_time(event_of(simulation, 1, 0).end_us, 50);
  expect_time(event_of(simulation, 5, 0).end_us, 75);
  expect_time(event_of(simulation, 3, 0).end_us, 85);
  expect_time(simulation.total_us, 85);
}

TEST(Simulator, DirectionsShareAHalfDuplexLinkAlone) {
  const Schedule both = by_hand(
      {{send(1, 0, 100000), receive(1, 100000, 200000)}, {receive(0, 0, 100000), send(0, 100000, 200000)}});
  const auto full = run(row({1, 1}, {10}), both, bytes_alone());
  const auto half = run(row({1, 1}, {10}, Duplex::half), both, bytes_alone());
  expect_time(full.total_us, 10);
  expect_time(half.total_us, 20);
  for (const ChannelUse& use : half.channels) {
    EXPECT_EQ(use.bytes, 100000U);
    if (link_of(use.channel) == 0) {
      EXPECT_NEAR(use.utilisation, 1, 1e-9);
    }
  }
}

TEST(Simulator, LongestFlowGetsTheWholeLinkOnceOthersHaveLeft) {
  // Four flows of 1 to 4 parts over one link: four flows share it during the first part, then 3, 2 and 1.
  std::vector<std::vector<Step>> steps(8);
  for (int i = 0; i < 4; ++i) {
    const auto size = static_cast<std::size_t>(i + 1) * 10000;
    steps[static_cast<std::size_t>(i)] = {send(i + 4, 0, size)};
    steps[static_cast<std::size_t>(i) + 4] = {receive(i, 0, size)};
  }
  const auto simulation = run(row({4, 4}, {10}), by_hand(steps), bytes_alone());
  for (const auto& [rank, end] : std::map<int, double>{{4, 4}, {5, 7}, {6, 9}, {7, 10}}) {
    expect_time(event_of(simulation, rank, 0).end_us, end);
  }
}

TEST(Simulator, ThousandsOfFlowsThatShareEverythingStillTakeTheRightTime) {
  // Each rank sends to all others at once, limited by its link. Rates are updated with a small delay.
  const int ranks = 64;
  const Topology topology = make_preset("host:64");
  for (const std::size_t count : {std::size_t{64}, std::size_t{6400}, std::size_t{64} << 18U}) {
    for (const double jitter : {0.0, 3.0}) {
      SCOPED_TRACE(fmt::format("{} elements, jitter {}", count, jitter));
      SimulationOptions options;
      options.jitter = jitter;
      options.cost.cpu_reduction = std::numeric_limits<double>::infinity();
      const auto simulation =
          run(topology, lower_all(plan_for(ranks, "64", {Algorithm::two_shot}), count), options);
      const double one_way = 4.0 * count * (ranks - 1) / ranks;
      const double bandwidth_time = one_way / copy_rate + one_way / pass_rate;
      const double issue_time = 2 * options.cost.step_overhead * (ranks - 1);
      EXPECT_GE(simulation.total_us, std::max(bandwidth_time, issue_time));
      EXPECT_LE(simulation.total_us, 1.002 * (bandwidth_time + issue_time + 2 * (1 + jitter)));
      expect_contiguous(simulation);
    }
  }
}

// --- What a step costs ---

TEST(Simulator, ARankIssuesOneSendAtATimeInListOrder) {
  SimulationOptions options = bytes_alone();
  options.cost.step_overhead = 2;
  const auto simulation = run(row({1, 3}, {1000}),
                              by_hand({{send(3, 0, 100), send(1, 0, 100), send(2, 0, 100)},
                                       {receive(0, 0, 100)},
                                       {receive(0, 0, 100)},
                                       {receive(0, 0, 100)}}),
                              options);
  for (std::uint32_t step = 0; step < 3; ++step) {
    expect_time(1 + event_of(simulation, 0, step).start_us, 1 + 2 * step);
    EXPECT_NEAR(event_of(simulation, 0, step).end_us, 2 * step + 2, 1e-3);
  }
  expect_contiguous(simulation);
  ASSERT_EQ(simulation.critical.size(), 3U);
  EXPECT_EQ(simulation.critical.back().step, 2U);
}

TEST(Simulator, ASendThatMayNotStartYetLeavesTheIssueUnitToLaterOnes) {
  SimulationOptions options = bytes_alone();
  options.cost.step_overhead = 2;
  options.stragglers = {{.rank = 1, .factor = 1, .start_us = 50}};
  const auto simulation =
      run(row({1, 2}, {1000}),
          by_hand({{send(1, 0, 100), send(2, 0, 100)}, {receive(0, 0, 100)}, {receive(0, 0, 100)}}), options);
  EXPECT_EQ(event_of(simulation, 0, 1).start_us, 0);
  EXPECT_EQ(event_of(simulation, 0, 0).start_us, 50);
}

TEST(Simulator, LatencyDelaysTheReceiverButNotTheStream) {
  SimulationOptions options = bytes_alone();
  options.cost.step_overhead = 1;
  std::vector<std::vector<Step>> steps(2);
  for (std::size_t i = 0; i < 5; ++i) {
    steps[0].push_back(send(1, i * 10000, (i + 1) * 10000));
    steps[1].push_back(receive(0, i * 10000, (i + 1) * 10000));
  }
  const auto simulation = run(row({1, 1}, {10}, Duplex::full, 7), by_hand(steps), options);
  expect_time(simulation.total_us, 5 * (1 + 1) + 7);
  expect_time(event_of(simulation, 0, 2).end_us, 6);
  expect_time(event_of(simulation, 1, 2).end_us, 6 + 7);
  expect_contiguous(simulation);
}

TEST(Simulator, ReductionsTakeTheDevicesTime) {
  for (const NodeKind device : {NodeKind::cpu, NodeKind::gpu}) {
    const Topology topology({"h"}, {{"a", device, 0}, {"b", device, 0}}, {{0, 1, LinkKind::nvlink, 10, 0.5}});
    SimulationOptions options = bytes_alone();
    options.cost = {0, 2, 5};
    const Step reduced = reduce(0, 10000, 20000);
    const Step copied = copy(0, 20000, 20000);
    const auto simulation = run(
        topology, by_hand({{send(1, 0, 20000)}, {receive_reduce(0, 0, 20000), reduced, copied}}), options);
    const double reduction = device == NodeKind::cpu ? 2e3 : 5e3;
    expect_time(event_of(simulation, 0, 0).end_us, 2);
    expect_time(event_of(simulation, 1, 0).end_us, 2.5 + 20000 / reduction);
    expect_time(event_of(simulation, 1, 1).end_us, 2.5 + 30000 / reduction);
    expect_time(simulation.total_us, 2.5 + 50000 / reduction);
    expect_contiguous(simulation);
  }
}

TEST(Simulator, FinishTakesNoTimeAndNothingToDoTakesNone) {
  const Topology topology = make_preset("host:2");
  EXPECT_EQ(run(topology, by_hand({{}, {}})).total_us, 0);
  const auto simulation = run(topology, by_hand({{{.kind = StepKind::finish, .phase = 3, .end = 10}}, {}}));
  EXPECT_EQ(simulation.total_us, 0);
  ASSERT_EQ(simulation.phases.size(), 1U);
  EXPECT_EQ(simulation.phases[0].phase, 3);
}

// --- Stragglers and jitter ---

TEST(Simulator, AStragglerHoldsUpAll) {
  const Topology topology = make_preset("host:4");
  const Schedule ring = lower_all(plan_for(4, "4", {Algorithm::ring}), 4000);
  SimulationOptions options;
  const double without = run(topology, ring, options).total_us;
  options.stragglers = {{.rank = 2, .factor = 1, .start_us = 100}};
  const auto late = run(topology, ring, options);
  EXPECT_GT(late.total_us, without + 99);
  EXPECT_LE(late.total_us, without + 101);  // waiting may change the order in which ranks go first
  EXPECT_EQ(late.critical.front().start_us, 100);

  options.stragglers = {{.rank = 2, .factor = 3, .start_us = 0}};
  const double slow = run(topology, ring, options).total_us;
  EXPECT_GT(slow, without);
  EXPECT_LT(slow, 3 * without);
  options.stragglers.clear();
  for (int rank = 0; rank < 4; ++rank) options.stragglers.push_back({rank, 3, 0});
  const double bytes = 4000 * 4;
  expect_time(run(topology, ring, options).total_us,
              6 * (3 * options.cost.step_overhead + 0.2) + 3 * bytes / 4 * (1 / pass_rate + 1 / copy_rate) +
                  3 * options.cost.reduction_us(NodeKind::cpu, bytes) * 3 / 4);
}

// Plans that reduce while they send would look free on CPUs.
TEST(Simulator, ReductionsOfACpuShareItsCoreWithTransfers) {
  // Rank 0 reduces one half of its buffer into the other, while rank 1 sends to a third part of it.
  const Topology topology = make_preset("host:2");
  constexpr std::size_t count = 1U << 18U;
  const Step reduction = reduce(0, count, count);
  const Schedule schedule =
      by_hand({{receive(1, 2 * count, 3 * count), reduction}, {send(0, 2 * count, 3 * count)}});
  SimulationOptions options;
  options.cost.step_overhead = 0;
  const double bytes = 4.0 * count;
  // Each alone would have the whole core: 24 GB/s for the transfer.
  const double in_turn = bytes / 24e3 + options.cost.reduction_us(NodeKind::cpu, bytes);
  EXPECT_NEAR(run(topology, schedule, options).total_us, in_turn, 0.3);
}

TEST(Simulator, JitterIsTheSameForASeedAndSlowsDown) {
  const Topology topology = make_preset("ethernet:4x2");
  const Schedule schedule = lower_all(plan_for(8, "2x4", {Algorithm::ring, Algorithm::ring}, 4), 100000);
  SimulationOptions options;
  const double without = run(topology, schedule, options).total_us;
  options.jitter = 0.5;
  const double one = run(topology, schedule, options).total_us;
  EXPECT_EQ(one, run(topology, schedule, options).total_us);
  options.seed = 2;
  EXPECT_NE(one, run(topology, schedule, options).total_us);
  for (options.seed = 1; options.seed < 20; ++options.seed) {
    const auto simulation = run(topology, schedule, options);
    EXPECT_GT(simulation.total_us, without);
    EXPECT_LT(simulation.total_us, 1.5 * without);
    expect_contiguous(simulation);
  }
}

// --- What holds everywhere ---

struct Case {
  Topology topology;
  int ranks;
  Schedule schedule;
  std::size_t count;
};

Case random_case(unsigned seed) {
  constexpr std::array algorithms = {Algorithm::ring, Algorithm::halving_doubling, Algorithm::two_shot,
                                     Algorithm::one_shot, Algorithm::tree};
  Topology topology = random_graph(seed, true);
  const int ranks = static_cast<int>(topology.devices().size());
  std::vector<std::string> grids = {std::to_string(ranks)};
  for (int inner = 2; inner < ranks; ++inner) {
    if (ranks % inner == 0) grids.push_back(fmt::format("{}x{}", inner, ranks / inner));
  }
  std::mt19937 random(seed);
  const std::string& grid = grids[random() % grids.size()];
  const auto dimensions = static_cast<std::size_t>(Decomposition::parse(grid, ranks).dimensions());
  std::vector<Algorithm> chosen;
  for (std::size_t i = 0; i < dimensions; ++i) chosen.push_back(algorithms[random() % algorithms.size()]);
  Plan plan = plan_for(ranks, grid, chosen, 1 << (random() % 5));
  std::ranges::shuffle(plan.order, random);
  const std::size_t count = 1 + random() % 100000;
  for (PlanDimension& dimension : plan.dimensions) {
    if (random() % 2 == 0) dimension.carrier = Carrier::shared_memory;
  }
  Schedule schedule = seed % 2 == 0
                          ? lower_all(plan, count)
                          : schedule_to_run(plan, count, 0, topology, place_by_host(topology, ranks));
  return {topology, ranks, std::move(schedule), count};
}

TEST(Simulator, NeverBeatsTheBytesOverACut) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = random_case(seed);
    SimulationOptions options;
    if (seed % 3 == 0) options.jitter = 0.3;
    if (seed % 4 == 0) options.cost = bytes_alone().cost;
    const auto simulation = run(c.topology, c.schedule, options);
    const double bound =
        PhysicalBound(c.topology, place_by_host(c.topology, c.ranks)).us(Collective::all_reduce, 4 * c.count);
    EXPECT_GE(simulation.total_us, bound * (1 - 1e-9));
  }
}

TEST(Simulator, CriticalPathHasNoGapsAndBytesAddUp) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = random_case(seed);
    SimulationOptions options;
    if (seed % 3 == 0) options.jitter = 0.3;
    if (seed % 5 == 0) options.stragglers = {{0, 4, 0}};
    const auto simulation = run(c.topology, c.schedule, options);
    if (c.ranks > 1) expect_contiguous(simulation);

    const Placement placement = place_by_host(c.topology, c.ranks);
    std::map<Channel, std::uint64_t> bytes;
    std::uint64_t sent = 0;
    for (int rank = 0; rank < c.ranks; ++rank) {
      for (const Step& step : c.schedule.ranks[static_cast<std::size_t>(rank)].steps) {
        if (step.kind != StepKind::send) continue;
        sent += 4 * step.size();
        const auto node = [&](int r) {
          return c.topology.devices()[static_cast<std::size_t>(placement[static_cast<std::size_t>(r)])];
        };
        for (const Channel channel : c.topology.route(node(rank), node(step.peer))) {
          bytes[channel] += 4 * step.size();
        }
      }
    }
    ASSERT_EQ(simulation.channels.size(), bytes.size());
    for (const ChannelUse& use : simulation.channels) {
      EXPECT_EQ(use.bytes, bytes[use.channel]);
      EXPECT_GT(use.utilisation, 0);
      EXPECT_LE(use.utilisation, 1 + 1e-9);
    }
    const auto of_phases =
        std::accumulate(simulation.phases.begin(), simulation.phases.end(), std::uint64_t{0},
                        [](std::uint64_t sum, const SimulatedPhase& phase) { return sum + phase.bytes; });
    EXPECT_EQ(of_phases, sent);

    double last = 0;
    for (const SimulatedEvent& event : simulation.events) {
      EXPECT_LE(event.start_us, event.end_us);
      last = std::max(last, event.end_us);
    }
    EXPECT_EQ(last, simulation.total_us);
  }
}

TEST(Simulator, ReusedGivesWhatANewOneGives) {
  const Topology topology = make_preset("ac922:2");
  const Placement placement = place_round_robin(topology, 8);
  Simulator simulator(topology, placement);
  for (const char* grid : {"4x2", "8", "2x2x2", "8"}) {
    const auto dimensions = static_cast<std::size_t>(Decomposition::parse(grid, 8).dimensions());
    const Schedule schedule =
        lower_all(plan_for(8, grid, std::vector(dimensions, Algorithm::halving_doubling), 2), 12345);
    EXPECT_EQ(simulator.run(schedule).total_us, simulate(topology, placement, schedule).total_us);
  }
}

// --- Bad input ---

std::string refusal(const Schedule& schedule, const SimulationOptions& options = {}) {
  const Topology topology = make_preset("host:2");
  return error_of([&] { simulate(topology, {0, 1}, schedule, options); });
}

TEST(Simulator, RefusesWhatWouldNeverEnd) {
  const std::string deadlock =
      refusal(by_hand({{receive(1, 0, 10), send(1, 0, 10)}, {receive(0, 0, 10), send(0, 0, 10)}}));
  expect_contains(deadlock, "invalid_argument");
  expect_contains(deadlock, "deadlock after 0 of 4 steps");
  expect_contains(deadlock, "rank 0 waits in step 0, receive [0, 10) from 1");

  expect_contains(refusal(by_hand({{send(1, 0, 10)}, {}})),
                  "rank 0 sends 1 times to rank 1, which receives 0 times");
  expect_contains(refusal(by_hand({{receive(1, 0, 10)}, {}})),
                  "receives 1 times from rank 1, which sends 0 times");
  expect_contains(refusal(by_hand({{send(1, 0, 10)}, {receive(0, 0, 11)}})),
                  "found 10 elements sent, expected 11");
}

TEST(Simulator, RefusesSchedulesThatAreNone) {
  expect_contains(refusal(by_hand({{send(2, 0, 10)}, {}})), "peer 2 in step 0 of rank 0");
  expect_contains(refusal(by_hand({{send(0, 0, 10)}, {}})), "another of the 2 ranks");
  expect_contains(refusal(by_hand({{send(-1, 0, 10)}, {}})), "peer -1");
  expect_contains(refusal(by_hand({{send(1, 10, 10)}, {receive(0, 10, 10)}})), "at least one element");
  const std::size_t huge = std::size_t{1} << 60U;
  expect_contains(refusal(by_hand({{send(1, 0, huge)}, {receive(0, 0, huge)}})), "at most 1125899906842624");
  expect_contains(refusal(by_hand({{}, {}, {}})), "a placement of 2 ranks");
  const Topology topology = make_preset("host:2");
  expect_contains(error_of([&] { simulate(topology, {0, 0}, by_hand({{}, {}})); }), "placement");
  expect_contains(error_of([&] { simulate(topology, {0, 2}, by_hand({{}, {}})); }), "placement");
}

TEST(Simulator, RefusesOptionsOutOfRange) {
  const Schedule nothing = by_hand({{}, {}});
  const auto with = [&](auto change) {
    SimulationOptions options;
    change(options);
    return refusal(nothing, options);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_contains(with([](auto& o) { o.jitter = -1; }), "jitter: found -1");
  expect_contains(with([&](auto& o) { o.jitter = nan; }), "jitter");
  expect_contains(with([&](auto& o) { o.cost.step_overhead = nan; }), "step_overhead");
  expect_contains(with([](auto& o) { o.cost.step_overhead = -1; }), "step_overhead");
  expect_contains(with([](auto& o) { o.cost.cpu_reduction = 0; }), "cpu_reduction");
  expect_contains(with([&](auto& o) { o.cost.gpu_reduction = nan; }), "gpu_reduction");
  expect_contains(with([](auto& o) { o.element_bytes = 0; }), "element_bytes");
  expect_contains(with([](auto& o) { o.stragglers = {{2, 1, 0}}; }), "straggler's rank: found 2");
  expect_contains(with([](auto& o) { o.stragglers = {{0, 0.5, 0}}; }), "straggler's factor");
  expect_contains(with([](auto& o) { o.stragglers = {{0, 1, -1}}; }), "straggler's start");
  EXPECT_EQ(with([](auto&) {}), "nothing");
}

}  // namespace
}  // namespace ddl::topology
