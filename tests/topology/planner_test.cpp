#include "ddl/topology/planner.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "ddl/error.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/simulator.hpp"
#include "ddl/topology/verifier.hpp"
#include "support/thrown_error.hpp"
#include "topology/graph/graph_builder.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/planner/phase_profile.hpp"

namespace ddl::topology {
namespace {

/// Hosts with `sizes[i]` CPU ranks each, behind a NIC of 1 Gb/s.
Topology unequal_hosts(const std::vector<int>& sizes) {
  GraphBuilder graph;
  const int network = graph.add_network("network");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const int host = graph.add_host(fmt::format("h{}", i));
    const int package = graph.add_node(host, "package", NodeKind::package);
    for (int rank = 0; rank < sizes[i]; ++rank) {
      const int cpu = graph.add_node(host, fmt::format("cpu{}", rank), NodeKind::cpu);
      graph.link(cpu, package, LinkKind::memory, 24, 0.1, Duplex::half);
    }
    const int nic = graph.add_node(host, "nic", NodeKind::nic);
    graph.link(package, nic, LinkKind::pcie, 15.75, 0.5);
    graph.link(nic, network, LinkKind::network, 0.125, 12);
  }
  return graph.finish();
}

// Plans for hosts with unequal numbers of ranks would be chosen by wrong times.
TEST(UnequalHosts, EveryCollectiveIsPredictedRightAndNearItsBound) {
  const Topology topology = unequal_hosts({4, 3, 2, 1});
  const Placement placement = place_by_host(topology, 10);
  Planner planner(topology, placement);
  for (const Collective collective : planned_collectives()) {
    const Plan plan = planner.choose({collective, 16'000'000});
    SCOPED_TRACE(summary(plan));
    const Schedule schedule = lower_all(plan, 4'000'000);
    EXPECT_TRUE(verify(schedule));
    const double simulated = simulate(topology, placement, schedule).total_us;
    EXPECT_LT(simulated, 1.1 * plan.bound_us);
    EXPECT_LT(std::abs(simulated - plan.predicted_us), 0.1 * simulated);
  }
}

// Small messages of all four ranks of a host would go over the network, each at the cost of system calls.
TEST(CpuHosts, SmallAllReducesLeaveTheHostOnce) {
  const Topology topology = make_preset("ethernet:4x4@1gbit");
  Planner planner(topology, place_by_host(topology, 16));
  for (const std::uint64_t bytes : {8, 1024, 4096}) {
    const Plan plan = planner.choose({Collective::all_reduce, bytes});
    SCOPED_TRACE(summary(plan));
    EXPECT_EQ(plan.dimensions[0].algorithm, Algorithm::tree);
    EXPECT_EQ(plan.decomposition.size(0), 4);
  }
  EXPECT_LT(planner.choose({Collective::all_reduce, 16U << 20U}).predicted_us,
            1.05 * planner.choose({Collective::all_reduce, 16U << 20U}).bound_us);
}

// Plans for one host would have several chunks or stages, for which the engine needs several passes over
// memory.
TEST(CpuHosts, OneHostTakesOneShotForFewBytesAndTwoShotForMore) {
  for (const int ranks : {3, 4, 8}) {
    const Topology topology = make_preset(fmt::format("host:{}", ranks));
    Planner planner(topology, place_by_host(topology, ranks));
    for (const std::uint64_t bytes : {8, 1024}) {
      const Plan plan = planner.choose({Collective::all_reduce, bytes});
      EXPECT_EQ(plan.dimensions.back().algorithm, Algorithm::one_shot) << summary(plan);
    }
    for (const std::uint64_t bytes : {64U << 10U, 1U << 20U, 64U << 20U}) {
      const Plan plan = planner.choose({Collective::all_reduce, bytes});
      SCOPED_TRACE(summary(plan));
      EXPECT_EQ(plan.decomposition, Decomposition({ranks}, {}));
      EXPECT_EQ(plan.dimensions[0], (PlanDimension{Algorithm::two_shot, Carrier::shared_memory}));
      EXPECT_EQ(plan.chunks, 1);
    }
  }
}

constexpr std::uint64_t reference_model = 717'668'352;  // bytes

double simulated(const Planner& planner, const Plan& plan) {
  return simulate(planner.topology(), planner.placement(), lower_all(plan, plan.bytes / 4)).total_us;
}

/// The time of the program that ranks run, after cutting and fusing.
double simulated_run(const Planner& planner, const Plan& plan) {
  return simulate(planner.topology(), planner.placement(),
                  schedule_to_run(plan, plan.bytes / 4, 0, planner.topology(), planner.placement()))
      .total_us;
}

PlanRequest all_reduce(std::uint64_t bytes) { return {Collective::all_reduce, bytes}; }

std::string message_of(const std::function<void()>& call) {
  return test::message_of(ErrorCode::invalid_argument, call);
}

Plan flat(int ranks, Algorithm algorithm, std::uint64_t bytes) {
  Plan plan;
  plan.bytes = bytes;
  plan.decomposition = Decomposition({ranks}, {});
  plan.dimensions[0].algorithm = algorithm;
  plan.order.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) plan.order[static_cast<std::size_t>(rank)] = rank;
  return plan;
}

/// The bytes of messages by (phase, from, to).
using Traffic = std::map<std::tuple<int, int, int>, double>;

Traffic traffic_of_lowering(const Plan& plan, std::size_t count) {
  Traffic traffic;
  const Schedule schedule = lower_all(plan, count);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const Step& step : schedule.ranks[rank].steps) {
      if (step.kind != StepKind::send) continue;
      traffic[{step.phase, static_cast<int>(rank), step.peer}] += static_cast<double>(step.size());
    }
  }
  return traffic;
}

// Patterns, from which predictions are made, would differ from the schedules that run.
TEST(Pattern, IsWhatTheLoweringSends) {
  constexpr std::size_t each = 5040;
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
    for (int size = 2; size <= 13; ++size) {
      for (const Algorithm algorithm : {Algorithm::ring, Algorithm::halving_doubling, Algorithm::two_shot,
                                        Algorithm::one_shot, Algorithm::tree, Algorithm::double_tree}) {
        Plan plan = flat(size, algorithm, 0);
        plan.collective = collective;
        try {
          require_valid(plan);
        } catch (const Error&) {
          continue;
        }
        const std::size_t count = each * static_cast<std::size_t>(size);
        Traffic expected;
        const auto phases = phases_of(plan);
        for (std::size_t phase = 0; phase < phases.size(); ++phase) {
          int rounds = 0;
          for (const PatternRound& round : pattern_of(collective, algorithm, phases[phase].kind, size)) {
            rounds += round.repeat;
            for (const PatternEdge& edge : round.edges) {
              expected[{static_cast<int>(phase), edge.from, edge.to}] +=
                  round.repeat * round.share * static_cast<double>(count);
            }
          }
          EXPECT_EQ(figures_of(plan, phases[phase]).rounds, rounds) << to_string(algorithm) << ' ' << size;
        }
        const Traffic found = traffic_of_lowering(plan, count);
        ASSERT_EQ(found.size(), expected.size()) << to_string(algorithm) << ' ' << size;
        for (const auto& [edge, elements] : expected) {
          ASSERT_TRUE(found.contains(edge)) << to_string(algorithm) << ' ' << size;
          EXPECT_NEAR(found.at(edge), elements, 1e-6 * elements) << to_string(algorithm) << ' ' << size;
        }
      }
    }
  }
}

// Predictions would be wrong. Where nothing is shared and nothing overlaps, prediction and simulation equal
// the closed form.
TEST(Prediction, OfOneChunkIsTheSimulatedTime) {
  const Topology topology = make_preset("dgx_a100");
  Planner planner(topology, place_by_host(topology, 8));
  constexpr std::uint64_t bytes = 8 * 2520 * 4;
  for (const auto& [sizes, algorithms] : std::vector<std::pair<std::vector<int>, std::vector<Algorithm>>>{
           {{8}, {Algorithm::ring}},
           {{8}, {Algorithm::halving_doubling}},
           {{8}, {Algorithm::tree}},
           {{2, 2, 2}, {Algorithm::one_shot, Algorithm::one_shot, Algorithm::one_shot}},
           {{4, 2}, {Algorithm::ring, Algorithm::ring}},
           {{4, 2}, {Algorithm::tree, Algorithm::ring}}}) {
    Plan plan = flat(8, Algorithm::ring, bytes);
    plan.decomposition = Decomposition({sizes[0]}, {sizes.begin() + 1, sizes.end()});
    plan.dimensions.clear();
    for (const Algorithm algorithm : algorithms) plan.dimensions.push_back({algorithm, Carrier::cuda_ipc});
    planner.predict(plan);
    const double time = simulated(planner, plan);
    EXPECT_NEAR(plan.predicted_us, time, 0.02 * time) << to_text(plan);
    double sum = 0;
    for (const double us : plan.phase_us) sum += us;
    EXPECT_NEAR(sum, plan.predicted_us, 1e-6 * sum) << "phases of one chunk follow one another";
    EXPECT_EQ(plan.topology_hash, topology.hash());
    EXPECT_GT(plan.bound_us, 0);
  }
}

TEST(Prediction, WithManyChunksIsNearTheSimulatedTime) {
  const Topology topology = make_preset("ac922:4");
  Planner planner(topology, place_by_host(topology, 16));
  for (const int chunks : {2, 8, 64}) {
    for (const std::uint64_t bytes : {std::uint64_t{1} << 22, std::uint64_t{1} << 28}) {
      Plan plan = flat(16, Algorithm::ring, bytes);
      plan.decomposition = Decomposition({4}, {4});
      plan.dimensions = {{Algorithm::ring, Carrier::cuda_ipc}, {Algorithm::ring, Carrier::network}};
      plan.chunks = chunks;
      planner.predict(plan);
      const double time = simulated(planner, plan);
      EXPECT_NEAR(plan.predicted_us, time, 0.15 * time) << to_text(plan);
    }
  }
}

TEST(Choice, ReferenceModelIsNearTheBound) {
  const Topology topology = make_preset("ac922:4");
  Planner by_host(topology, place_by_host(topology, 16));
  Planner dealt_out(topology, place_round_robin(topology, 16));
  const Plan plan = by_host.choose(all_reduce(reference_model));
  const Plan other = dealt_out.choose(all_reduce(reference_model));
  const double time = simulated(by_host, plan);
  EXPECT_LE(time, 1.10 * plan.bound_us) << to_text(plan);
  EXPECT_NEAR(simulated(dealt_out, other), time, 0.01 * time) << to_text(other);
  EXPECT_NEAR(plan.predicted_us, time, 0.05 * time);
}

TEST(Choice, IsTheSameOnEveryRank) {
  const Topology topology = make_preset("dgx1v:2");
  for (const std::uint64_t bytes : {std::uint64_t{1} << 10, std::uint64_t{1} << 18, std::uint64_t{1} << 26}) {
    Planner one(topology, place_by_host(topology, 12));
    Planner other(topology, place_by_host(topology, 12));
    // Earlier requests must not matter.
    (void)other.choose(all_reduce(12345));
    (void)other.candidates({Collective::broadcast, 77}, 3);
    EXPECT_EQ(one.choose(all_reduce(bytes)), other.choose(all_reduce(bytes)));
  }
}

TEST(Choice, BeatsOrEqualsAFlatRing) {
  for (const auto& [name, ranks] : std::vector<std::pair<const char*, int>>{
           {"ac922:4", 16}, {"dgx1v:2", 12}, {"ethernet:3x4", 12}, {"host:7", 7}, {"dgx_h100:2", 16}}) {
    const Topology topology = make_preset(name);
    Planner planner(topology, place_by_host(topology, ranks));
    for (const std::uint64_t bytes :
         {std::uint64_t{1} << 10, std::uint64_t{1} << 17, std::uint64_t{1} << 24}) {
      const Plan plan = planner.choose(all_reduce(bytes));
      const Plan ring = flat(ranks, Algorithm::ring, bytes);
      EXPECT_LE(simulated_run(planner, plan), 1.01 * simulated_run(planner, ring)) << name << '\n'
                                                                                   << to_text(plan);
    }
  }
}

TEST(Choice, OneRankAndNoBytes) {
  const Topology topology = make_preset("host:3");
  Planner alone(topology, {1});
  const Plan nothing = alone.choose(all_reduce(1 << 20));
  EXPECT_EQ(to_string(nothing.decomposition), "1");
  EXPECT_EQ(nothing.predicted_us, 0);
  EXPECT_NO_THROW(require_valid(nothing));
  Planner planner(topology, place_by_host(topology, 3));
  const Plan empty = planner.choose(all_reduce(0));
  EXPECT_EQ(empty.predicted_us, 0);
  EXPECT_EQ(empty.chunks, 1);
  EXPECT_EQ(empty.decomposition.dimensions(), 1);
}

// Some kinds of plans would not be considered.
TEST(Candidates, AreAllThereAre) {
  const Topology topology = make_preset("ac922:3");
  Planner planner(topology, place_round_robin(topology, 12));
  const auto plans = planner.candidates(all_reduce(1 << 20));
  std::set<std::string> flat_rings;
  std::set<std::string> decompositions;
  std::set<std::pair<int, Algorithm>> algorithms;
  std::set<int> chunks;
  std::set<std::uint64_t> hashes;
  for (const Plan& plan : plans) {
    require_valid(plan);
    decompositions.insert(to_string(plan.decomposition));
    chunks.insert(plan.chunks);
    EXPECT_TRUE(hashes.insert(hash(plan)).second) << "twice: " << summary(plan);
    if (plan.dimensions.size() == 1 && plan.dimensions[0].algorithm == Algorithm::ring) {
      flat_rings.insert(plan.order_name);
    }
    for (int d = 0; d < plan.decomposition.dimensions(); ++d) {
      algorithms.insert({plan.decomposition.size(d), plan.dimensions[static_cast<std::size_t>(d)].algorithm});
    }
  }
  EXPECT_EQ(flat_rings, (std::set<std::string>{"as placed", "by host"}));
  EXPECT_EQ(decompositions,
            (std::set<std::string>{"12", "2x6", "6x2", "3x4", "4x3", "2x2x3", "2x3x2", "3x2x2"}));
  EXPECT_EQ(chunks, (std::set<int>{1, 2, 4, 8, 16, 32, 64}));
  for (const int size : {4, 6, 12}) {
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::halving_doubling, Algorithm::two_shot,
                                      Algorithm::one_shot, Algorithm::tree}) {
      EXPECT_TRUE(algorithms.contains({size, algorithm})) << size << ' ' << to_string(algorithm);
    }
  }
  EXPECT_TRUE(std::ranges::is_sorted(plans, {},
                                     [](const Plan& plan) { return static_cast<float>(plan.predicted_us); }));
  EXPECT_EQ(planner.candidates(all_reduce(1 << 20), 5).size(), 5U);
  Plan again = plans[17];
  planner.predict(again);
  EXPECT_EQ(again, plans[17]);
}

TEST(Candidates, KeepTheHierarchyOfUnequalHosts) {
  const Topology topology = make_preset("ac922:3");
  Planner planner(topology, {0, 1, 2, 3, 4, 5, 8});
  bool has_ragged = false;
  for (const Plan& plan : planner.candidates(all_reduce(1 << 26))) {
    has_ragged |= to_string(plan.decomposition) == "4,2,1x3";
  }
  EXPECT_TRUE(has_ragged);
  const Plan plan = planner.choose(all_reduce(1 << 28));
  EXPECT_TRUE(plan.decomposition.ragged()) << to_text(plan);
  EXPECT_LT(simulated(planner, plan), simulated(planner, flat(7, Algorithm::ring, 1 << 28)));
}

TEST(Modes, TakeTheirFamilies) {
  const Topology topology = make_preset("ac922:2");
  Planner planner(topology, place_by_host(topology, 8));
  const auto each = [&](Mode mode, auto check) {
    PlanRequest request = all_reduce(1 << 22);
    request.mode = mode;
    const auto plans = planner.candidates(request);
    EXPECT_FALSE(plans.empty());
    for (const Plan& plan : plans) {
      EXPECT_EQ(plan.mode, mode);
      EXPECT_TRUE(plan.notes.empty());
      for (const PlanDimension& dimension : plan.dimensions) check(plan, dimension);
    }
  };
  each(Mode::rings, [](const Plan&, const PlanDimension& d) { EXPECT_EQ(d.algorithm, Algorithm::ring); });
  each(Mode::nccl, [](const Plan& plan, const PlanDimension& d) {
    EXPECT_EQ(d, (PlanDimension{Algorithm::ring, Carrier::nccl}));
    EXPECT_EQ(plan.dimensions.size(), 1U);
  });
  each(Mode::nccl_per_dimension, [](const Plan& plan, const PlanDimension& d) {
    EXPECT_EQ(d, (PlanDimension{Algorithm::ring, Carrier::nccl}));
    EXPECT_NE(to_string(plan.decomposition), "8");
    EXPECT_NE(to_string(plan.decomposition), "2x4");
  });
  each(Mode::scatter_gather,
       [](const Plan&, const PlanDimension& d) { EXPECT_LE(d.algorithm, Algorithm::two_shot); });
  each(Mode::mpi, [](const Plan& plan, const PlanDimension& d) {
    EXPECT_EQ(d.carrier, Carrier::mpi);
    EXPECT_EQ(plan.order_name, "by host") << "ranks in order, which here lie by host";
  });
  each(Mode::explore, [](const Plan& plan, const PlanDimension& d) {
    if (to_string(plan.decomposition) != "4x2") return;
    EXPECT_EQ(d.carrier, &d == plan.dimensions.data() ? Carrier::cuda_ipc : Carrier::network);
  });
}

// Mode mpi would use knowledge that MPI does not have, and comparisons with it would be meaningless.
TEST(Modes, MpiKnowsNothingOfTheWiring) {
  const Topology topology = make_preset("ac922:4");
  Planner planner(topology, place_round_robin(topology, 16));
  using Algorithms = std::vector<Algorithm>;
  const auto ways_of = [&](const PlanRequest& request) {
    std::set<Algorithms> ways;
    for (const Plan& plan : planner.candidates(request)) {
      EXPECT_EQ(plan.chunks, 1) << summary(plan);
      EXPECT_EQ(plan.order_name, "as placed") << summary(plan);
      Algorithms way;
      for (const PlanDimension& dimension : plan.dimensions) way.push_back(dimension.algorithm);
      ways.insert(std::move(way));
    }
    return ways;
  };
  PlanRequest request = all_reduce(1 << 22);
  request.mode = Mode::mpi;
  EXPECT_EQ(ways_of(request), (std::set<Algorithms>{{Algorithm::ring},
                                                    {Algorithm::halving_doubling},
                                                    {Algorithm::tree},
                                                    Algorithms(4, Algorithm::one_shot)}));
  request.decomposition = Decomposition({4}, {4});
  for (const Algorithms& way : ways_of(request)) EXPECT_EQ(way[0], way[1]) << to_string(way[0]);
  request = {Collective::broadcast, 1 << 22};
  request.mode = Mode::mpi;
  EXPECT_EQ(ways_of(request),
            (std::set<Algorithms>{{Algorithm::ring}, {Algorithm::two_shot}, {Algorithm::tree}}));
}

// Users would not learn why NCCL is not used.
TEST(Modes, SayWhyNcclIsNotUsed) {
  const Topology cpus = make_preset("ethernet:2x2");
  Planner on_cpus(cpus, place_by_host(cpus, 4));
  const Topology gpus = make_preset("ac922");
  Planner on_gpus(gpus, place_by_host(gpus, 4));
  for (const Mode mode : {Mode::nccl, Mode::nccl_per_dimension}) {
    PlanRequest request = all_reduce(1 << 20);
    request.mode = mode;
    Plan plan = on_cpus.choose(request);
    ASSERT_EQ(plan.notes.size(), 1U);
    EXPECT_NE(plan.notes[0].find("rank 0 is not on a GPU"), std::string::npos) << plan.notes[0];
    for (const PlanDimension& dimension : plan.dimensions) {
      EXPECT_EQ(dimension.algorithm, Algorithm::ring);
      EXPECT_NE(dimension.carrier, Carrier::nccl);
    }
    request.nccl = false;
    plan = on_gpus.choose(request);
    ASSERT_EQ(plan.notes.size(), 1U);
    EXPECT_NE(plan.notes[0].find("not available"), std::string::npos) << plan.notes[0];
    request.nccl = true;
    EXPECT_TRUE(on_gpus.choose(request).notes.empty());
  }
}

Plan choose_on_devices(const std::string& preset, const std::string& carriers, Collective collective,
                       std::uint64_t bytes, Mode mode = Mode::explore, bool is_dealt = false) {
  const Topology topology = make_preset(preset).with_carriers(device_carriers_from(carriers));
  const auto ranks = static_cast<int>(topology.devices().size());
  Planner planner(topology, is_dealt ? place_round_robin(topology, ranks) : place_by_host(topology, ranks));
  PlanRequest request;
  request.collective = collective;
  request.bytes = bytes;
  request.mode = mode;
  Plan plan = planner.choose(request);
  EXPECT_TRUE(planner.executes(plan)) << summary(plan);
  Plan again = plan;
  planner.predict(again);
  EXPECT_EQ(again.predicted_us, plan.predicted_us) << summary(plan);
  // With a network, simulation chooses the plan instead of the prediction.
  if (!topology.carriers()->network) {
    EXPECT_EQ(planner.candidates(request, 1).front(), plan);
  }
  return plan;
}

// Devices would get plans for carriers that they do not have.
TEST(OnDevices, PlansAreOfTheCarriersThatThereAre) {
  constexpr std::uint64_t small = 4096;
  constexpr std::uint64_t large = 256 << 20;
  using enum Carrier;
  const auto carriers = [](const Plan& plan) {
    std::vector<Carrier> result;
    for (const PlanDimension& dimension : plan.dimensions) result.push_back(dimension.carrier);
    return result;
  };
  for (const Collective collective : planned_collectives()) {
    const auto chosen = [&](const std::string& preset, const std::string& names, std::uint64_t bytes) {
      return choose_on_devices(preset, names, collective, bytes);
    };
    EXPECT_EQ(carriers(chosen("dgx_a100", "cuda_ipc", large)), std::vector{cuda_ipc});
    for (const Carrier carrier : carriers(chosen("dgx_a100:2", "nccl", small))) EXPECT_EQ(carrier, nccl);
    EXPECT_EQ(carriers(chosen("dgx_a100:2", "cuda_ipc,host_memory", large)),
              (std::vector{cuda_ipc, host_memory}));
    for (const Carrier carrier : carriers(chosen("ac922:2", "network", large))) EXPECT_EQ(carrier, network);
    // NCCL has rings over all NVLinks, of which a single one would not go around.
    EXPECT_EQ(carriers(chosen("dgx1v", "cuda_ipc,nccl,host_memory", large)), std::vector{nccl});
  }
  const auto one_shot = [&](const std::string& names) {
    return choose_on_devices("dgx_a100", names, Collective::all_reduce, small).dimensions[0].algorithm;
  };
  EXPECT_EQ(one_shot("cuda_ipc:4096"), Algorithm::one_shot);
  EXPECT_EQ(one_shot("cuda_ipc:4095"), Algorithm::two_shot);
}

// Ranks with round-robin placement would be grouped across hosts.
TEST(OnDevices, GroupsFollowTheHosts) {
  const Plan plan =
      choose_on_devices("ac922:2", "cuda_ipc,network", Collective::all_reduce, 64 << 20, Mode::explore, true);
  EXPECT_EQ(to_string(plan.decomposition), "4x2");
  EXPECT_EQ(plan.order, (std::vector{0, 2, 4, 6, 1, 3, 5, 7}));
}

TEST(OnDevices, ModesNarrowTheChoiceAndSayWhereTheyCannot) {
  const auto chosen = [](const std::string& names, Mode mode) {
    return choose_on_devices("ac922:2", names, Collective::all_reduce, 64 << 20, mode);
  };
  EXPECT_EQ(chosen("cuda_ipc,nccl", Mode::nccl).dimensions,
            (std::vector{PlanDimension{Algorithm::ring, Carrier::nccl}}));
  const Plan by_dimension = chosen("cuda_ipc,nccl", Mode::nccl_per_dimension);
  EXPECT_EQ(by_dimension.dimensions, std::vector(2, PlanDimension{Algorithm::ring, Carrier::nccl}));
  EXPECT_TRUE(by_dimension.notes.empty());
  const Plan without = chosen("cuda_ipc,host_memory", Mode::nccl);
  ASSERT_EQ(without.notes.size(), 1U);
  EXPECT_NE(without.notes[0].find("-mode n (DDL_OPTIONS) asks for NCCL over all ranks"), std::string::npos);
}

// A user with 3 and 5 GPUs on two hosts would not learn why there is no hierarchy.
TEST(OnDevices, UnequalHostsGoFlatAndSayWhy) {
  const Topology topology = make_preset("ac922:2").with_carriers({.nccl = true});
  Planner planner(topology, {0, 1, 2, 4, 5});
  PlanRequest request = all_reduce(64 << 20);
  const Plan plan = planner.choose(request);
  EXPECT_EQ(plan.dimensions.size(), 1U);
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_NE(plan.notes[0].find("hosts have 3 and 2 ranks"), std::string::npos) << plan.notes[0];
}

// A small call would be predicted with the latency of NCCL's protocols for large ones, or a large call with
// the bandwidth of those for small ones.
TEST(OnDevices, NcclTakesTheBestProtocol) {
  const auto us = [](std::uint64_t bytes) {
    return choose_on_devices("dgx_a100", "nccl", Collective::all_reduce, bytes).predicted_us;
  };
  // 14 steps of protocol LL.
  EXPECT_NEAR(us(8), 6.6 + 14 * 0.6, 5);
  const double bound = 2 * 7.0 / 8 * (1 << 30) / 300e3;
  EXPECT_GT(us(1 << 30), bound);
  EXPECT_LT(us(1 << 30), 1.4 * bound);  // including reductions
  for (std::uint64_t bytes = 8; bytes < (1 << 28); bytes *= 2) EXPECT_LT(us(bytes), us(2 * bytes));
}

TEST(Requests, ADecompositionIsTaken) {
  const Topology topology = make_preset("ac922:2");
  Planner planner(topology, place_by_host(topology, 8));
  PlanRequest request = all_reduce(1 << 20);
  request.decomposition = Decomposition::parse("2x1x4", 8);
  request.chunks = 5;
  const Plan plan = planner.choose(request);
  EXPECT_EQ(plan.decomposition, *request.decomposition);
  EXPECT_EQ(plan.chunks, 5);
  request.mode = Mode::rings;
  for (const PlanDimension& dimension : planner.choose(request).dimensions) {
    EXPECT_EQ(dimension.algorithm, Algorithm::ring);
  }
}

TEST(Requests, WhatCannotBeIsRefused) {
  const Topology topology = make_preset("ac922:2");
  Planner planner(topology, place_by_host(topology, 6));
  PlanRequest request = all_reduce(1 << 20);
  request.decomposition = Decomposition({4}, {2});
  const std::string message = message_of([&] { (void)planner.choose(request); });
  EXPECT_NE(message.find("4x2 has 8 positions, but there are 6 ranks"), std::string::npos) << message;
  EXPECT_EQ(message_of([&] { (void)planner.candidates(request); }), message);
  request = all_reduce(1 << 20);
  for (const int chunks : {0, -1, 65}) {
    request.chunks = chunks;
    EXPECT_NE(message_of([&] { (void)planner.choose(request); }).find("expected 1 to 64"), std::string::npos);
  }
  EXPECT_NE(message_of([&] {
              (void)planner.choose({Collective::barrier, 0});
            }).find("barrier"),
            std::string::npos);
  Plan wrong = flat(5, Algorithm::ring, 4);
  EXPECT_NE(message_of([&] { planner.predict(wrong); }).find("expected 6"), std::string::npos);
  EXPECT_NE(message_of([&] { Planner twice(topology, {0, 0}); }).find("device 0"), std::string::npos);
}

// Rings would use GPUs that no NVLink joins, and be several times slower.
TEST(Orders, ByHostFollowsTheLinks) {
  const Topology topology = make_preset("dgx1v");
  Planner planner(topology, place_by_host(topology, 8));
  PlanRequest request = all_reduce(1 << 28);
  request.mode = Mode::rings;
  request.decomposition = Decomposition({8}, {});
  const std::vector<Plan> plans = planner.candidates(request);
  const auto found = std::ranges::find(plans, "by host", &Plan::order_name);
  ASSERT_NE(found, plans.end());
  const Plan& plan = *found;
  for (std::size_t i = 0; i < 8; ++i) {
    const int from = topology.devices()[static_cast<std::size_t>(plan.order[i])];
    const int to = topology.devices()[static_cast<std::size_t>(plan.order[(i + 1) % 8])];
    EXPECT_EQ(topology.route(from, to).size(), 1U) << plan.order[i] << " to " << plan.order[(i + 1) % 8];
  }
}

// Collectives of one DGX-1V would leave half of its NVLinks idle.
TEST(Orders, SeveralRingsUseEveryLinkForItsWidth) {
  const Topology topology = make_preset("dgx1v");
  Planner planner(topology, place_by_host(topology, 8));
  for (const Collective collective : planned_collectives()) {
    const Plan plan = planner.choose({collective, 1 << 30});
    SCOPED_TRACE(summary(plan));
    ASSERT_EQ(plan.further_orders.size(), 5U);
    EXPECT_LT(plan.predicted_us, 1.6 * plan.bound_us);
    std::map<Channel, double> rings;  // by direction of a link
    const auto add = [&](const std::vector<int>& order) {
      for (std::size_t i = 0; i < 8; ++i) {
        const auto route = topology.route(topology.devices()[static_cast<std::size_t>(order[i])],
                                          topology.devices()[static_cast<std::size_t>(order[(i + 1) % 8])]);
        ASSERT_EQ(route.size(), 1U);
        ++rings[route[0]];
      }
    };
    add(plan.order);
    for (const auto& order : plan.further_orders) add(order);
    for (const auto& [channel, count] : rings)
      EXPECT_EQ(count * 25, topology.link(link_of(channel)).bandwidth);
    EXPECT_EQ(rings.size(), 32U) << "16 pairs of GPUs have links";
  }
}

// Several rings would share links, and a plan would be no faster but have more messages.
TEST(Orders, OneRingWhereLinksAreShared) {
  for (const char* name : {"ac922", "dgx2", "dgx_a100", "host:8"}) {
    const Topology topology = make_preset(name);
    Planner planner(topology, place_by_host(topology, static_cast<int>(topology.devices().size())));
    for (const Plan& plan : planner.candidates(all_reduce(1 << 28))) {
      ASSERT_TRUE(plan.further_orders.empty()) << name << ": " << summary(plan);
    }
  }
}

// The plan would call the order "as placed" although it is by host, and users would look for another one.
TEST(Orders, AreNamedForWhereTheRanksAre) {
  const Topology topology = make_preset("ac922:2");
  PlanRequest request = all_reduce(1 << 20);
  request.mode = Mode::rings;
  const auto names_of = [&](const Placement& placement) {
    Planner planner(topology, placement);
    std::set<std::string> names;
    for (const Plan& plan : planner.candidates(request)) names.insert(plan.order_name);
    return names;
  };
  EXPECT_EQ(names_of(place_by_host(topology, 8)), (std::set<std::string>{"by host"}));
  EXPECT_EQ(names_of(place_round_robin(topology, 8)), (std::set<std::string>{"as placed", "by host"}));
}

/// Two racks of two hosts with two CPU ranks each; the link between racks has a quarter of a host's
/// bandwidth.
Topology oversubscribed() {
  GraphBuilder graph;
  const std::vector<int> leaves = {graph.add_network("leaf0"), graph.add_network("leaf1")};
  const int spine = graph.add_network("spine");
  for (const int leaf : leaves) graph.link(leaf, spine, LinkKind::network, 0.25, 1);
  for (int host = 0; host < 4; ++host) {
    const int at = graph.add_host(fmt::format("h{}", host));
    const int package = graph.add_node(at, "package", NodeKind::package);
    for (const char* name : {"cpu0", "cpu1"}) {
      graph.link(graph.add_node(at, name, NodeKind::cpu), package, LinkKind::memory, 10, 0.1);
    }
    const int nic = graph.add_node(at, "nic", NodeKind::nic);
    graph.link(package, nic, LinkKind::pcie, 10, 0.5);
    graph.link(nic, leaves[static_cast<std::size_t>(host / 2)], LinkKind::network, 1, 1);
  }
  return graph.finish();
}

TEST(Choice, CrossesANarrowSpineNoMoreThanItMust) {
  const Topology topology = oversubscribed();
  Planner planner(topology, place_by_host(topology, 8));
  const Plan plan = planner.choose(all_reduce(1 << 26));
  EXPECT_LE(simulated(planner, plan), 1.1 * plan.bound_us) << to_text(plan);
}

TEST(Choice, ThousandsOfRanks) {
  const Topology topology = make_preset("dgx_a100:128");
  Planner planner(topology, place_by_host(topology, 1024));
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
    for (const std::uint64_t bytes : {std::uint64_t{1} << 12, reference_model}) {
      const Plan plan = planner.choose({collective, bytes});
      require_valid(plan);
      EXPECT_GE(plan.predicted_us, plan.bound_us * 0.99);
      EXPECT_LE(plan.predicted_us, 20 * plan.bound_us) << to_text(plan);
      EXPECT_GT(plan.decomposition.dimensions(), 1) << to_text(plan);
    }
  }
}

// Mode explore would choose worse plans than a restricted mode or a decomposition given by hand.
TEST(Choice, OfEverythingIsNoWorseThanOfAPart) {
  for (const auto& [name, wanted] : std::vector<std::pair<const char*, std::vector<const char*>>>{
           {"ethernet:256x4@100gbit", {"1024", "4x256", "4x16x16", "2x2x256", "16x64"}},
           {"ethernet:257x4@100gbit", {"1028", "4x257", "2x2x257"}},
           {"dgx_a100:16", {"128", "8x16", "8x4x4", "2x4x16"}},
           {"ac922:60", {"240", "4x60", "4x6x10", "2x2x60"}}}) {
    const Topology topology = make_preset(name);
    const auto ranks = static_cast<int>(topology.devices().size());
    for (const bool is_dealt_out : {false, true}) {
      Planner planner(topology,
                      is_dealt_out ? place_round_robin(topology, ranks) : place_by_host(topology, ranks));
      for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
        for (const std::uint64_t bytes : {std::uint64_t{1} << 12, std::uint64_t{1} << 26}) {
          const PlanRequest everything{collective, bytes};
          const Plan plan = planner.choose(everything);
          const auto check = [&](const PlanRequest& part) {
            const Plan other = planner.choose(part);
            EXPECT_LE(plan.predicted_us, other.predicted_us * (1 + 1e-6))
                << name << ": " << summary(plan) << "\nworse than " << summary(other);
          };
          for (const Mode mode : {Mode::rings, Mode::scatter_gather, Mode::mpi, Mode::nccl_per_dimension}) {
            PlanRequest part = everything;
            part.mode = mode;
            check(part);
          }
          for (const char* sizes : wanted) {
            PlanRequest part = everything;
            part.decomposition = Decomposition::parse(sizes, ranks);
            check(part);
          }
        }
      }
    }
  }
}

// Planning a decomposition of many dimensions would take forever, because the combinations of algorithms
// multiply.
TEST(Requests, ADecompositionOfManyDimensionsIsTaken) {
  const Topology topology = make_preset("ethernet:256x4");
  Planner planner(topology, place_by_host(topology, 1024));
  PlanRequest request = all_reduce(1 << 20);
  request.decomposition = Decomposition::parse("4x1x2x2x2x4x2x2x2", 1024);
  EXPECT_EQ(planner.choose(request).decomposition, *request.decomposition);
}

}  // namespace
}  // namespace ddl::topology
