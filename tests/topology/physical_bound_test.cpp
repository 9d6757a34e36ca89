#include "ddl/topology/physical_bound.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ddl/error.hpp"
#include "ddl/topology/planner.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/simulator.hpp"
#include "topology/graph/graph_builder.hpp"
#include "topology/random_graph.hpp"

namespace ddl::topology {
namespace {

constexpr double bytes_per_us = 1e3;  // in a GB/s

// The figure with which the article's plans are compared would be wrong.
TEST(PhysicalBound, OfTheReferenceModelIsSetByTheNics) {
  const Topology topology = make_preset("ac922:4");
  constexpr std::uint64_t bytes = 717'668'352;
  const double expected = 2.0 * 3 * bytes / (4 * 12.5 * bytes_per_us);
  for (const Placement& placement : {place_by_host(topology, 16), place_round_robin(topology, 16)}) {
    EXPECT_NEAR(PhysicalBound(topology, placement).us(Collective::all_reduce, bytes), expected,
                1e-6 * expected);
  }
}

TEST(PhysicalBound, ABroadcastEntersEachHostOnce) {
  const Topology topology = make_preset("ac922:4");
  const double bound =
      PhysicalBound(topology, place_by_host(topology, 16)).us(Collective::broadcast, 100'000'000);
  EXPECT_NEAR(bound, 100e6 / (12.5 * bytes_per_us), 1);
}

// Bounds of reduce_scatter and all_gather would be wrong. Of 16 pieces, a host keeps four.
TEST(PhysicalBound, PiecesOfOtherHostsCrossTheNics) {
  const Topology topology = make_preset("ac922:4");
  const double once = 100e6 / (12.5 * bytes_per_us);
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
    EXPECT_NEAR(PhysicalBound(topology, place_by_host(topology, 16)).us(collective, 100'000'000),
                once * 3 / 4, 1);
    // Three ranks on one host and one on another: the latter's NIC carries three quarters, in one direction.
    EXPECT_NEAR(PhysicalBound(topology, {0, 1, 2, 4}).us(collective, 100'000'000), once * 3 / 4, 1);
  }
  EXPECT_NEAR(PhysicalBound(topology, place_by_host(topology, 16)).us(Collective::reduce, 100'000'000), once,
              1);
}

// The packages of an AC922 are joined by 32 GB/s, and by its NIC besides, over which no route goes.
TEST(PhysicalBound, SeesWhatIsNarrowInsideAHost) {
  const Topology topology = make_preset("ac922");
  const double bound =
      PhysicalBound(topology, place_by_host(topology, 4)).us(Collective::all_reduce, 1 << 30);
  EXPECT_NEAR(bound, 2.0 * (1 << 30) / (2 * 32 * bytes_per_us), 1);
}

// A host has eight NICs of 50 GB/s, one for each GPU.
TEST(PhysicalBound, CountsTheNicsOfTheRanksOnly) {
  const Topology topology = make_preset("dgx_h100:2");
  const double one_nic = 1e9 / (50 * bytes_per_us);
  EXPECT_NEAR(PhysicalBound(topology, {0, 8}).us(Collective::all_reduce, 1'000'000'000), one_nic, 1);
  EXPECT_NEAR(PhysicalBound(topology, {0, 1, 8, 9}).us(Collective::all_reduce, 1'000'000'000), one_nic / 2,
              1);
  EXPECT_NEAR(PhysicalBound(topology, {0, 1, 8}).us(Collective::broadcast, 1'000'000'000), one_nic, 1);
}

/// Two racks of two hosts each, with one link between their switches.
Topology two_racks(Duplex duplex) {
  GraphBuilder graph;
  const std::vector<int> leaves = {graph.add_network("leaf0"), graph.add_network("leaf1")};
  for (int host = 0; host < 4; ++host) {
    const int at = graph.add_host(fmt::format("h{}", host));
    const int package = graph.add_node(at, "package", NodeKind::package);
    const int cpu = graph.add_node(at, "cpu", NodeKind::cpu);
    const int nic = graph.add_node(at, "nic", NodeKind::nic);
    graph.link(cpu, package, LinkKind::memory, 10, 0.1);
    graph.link(package, nic, LinkKind::pcie, 10, 0.5);
    graph.link(nic, leaves[static_cast<std::size_t>(host / 2)], LinkKind::network, 10, 1);
  }
  graph.links.push_back({leaves[0], leaves[1], LinkKind::network, 1, 1, duplex});
  return graph.finish();
}

TEST(PhysicalBound, SeesTheLinkBetweenRacks) {
  const Topology full = two_racks(Duplex::full);
  const double once = 1e9 / bytes_per_us;
  EXPECT_NEAR(PhysicalBound(full, place_by_host(full, 4)).us(Collective::all_reduce, 1'000'000'000), once, 1);
  const Topology half = two_racks(Duplex::half);
  EXPECT_NEAR(PhysicalBound(half, place_by_host(half, 4)).us(Collective::all_reduce, 1'000'000'000), 2 * once,
              1);
  EXPECT_NEAR(PhysicalBound(half, place_by_host(half, 4)).us(Collective::broadcast, 1'000'000'000), once, 1);
}

TEST(PhysicalBound, FewBytesTakeTheLongestWaysLatency) {
  const Topology topology = two_racks(Duplex::full);
  const double across = 2 * (0.1 + 0.5 + 1) + 1;
  EXPECT_NEAR(PhysicalBound(topology, place_by_host(topology, 4)).us(Collective::all_reduce, 4), across,
              0.01);
  EXPECT_EQ(PhysicalBound(topology, {0}).us(Collective::all_reduce, 1 << 20), 0);
  EXPECT_EQ(PhysicalBound(topology, {0, 3}).us(Collective::all_reduce, 0), 0);
  EXPECT_THROW(PhysicalBound(topology, {0, 0}), Error);
}

// A plan could beat the bound, and every printed ratio would be wrong.
TEST(PhysicalBound, NoPlanBeatsItOnRandomGraphs) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Topology topology = random_graph(seed, true);
    const auto devices = static_cast<int>(topology.devices().size());
    if (devices < 2) continue;
    std::mt19937 random(seed);
    Placement placement = place_by_host(topology, devices);
    std::shuffle(placement.begin(), placement.end(), random);
    Planner planner(topology, placement);
    const PhysicalBound bounds(topology, placement);
    for (const Collective collective : planned_collectives()) {
      for (std::uint64_t bytes : {std::uint64_t{4}, std::uint64_t{4000}, std::uint64_t{40'000'000}}) {
        if (has_pieces(collective)) bytes -= bytes % (4 * placement.size());
        const double bound = bounds.us(collective, bytes);
        for (const Plan& plan : planner.candidates({collective, bytes}, 4)) {
          const double time = simulate(topology, placement, lower_all(plan, bytes / 4)).total_us;
          EXPECT_GE(time, bound * (1 - 1e-9)) << "seed " << seed << ": " << summary(plan);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ddl::topology
