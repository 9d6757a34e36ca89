// Rates determine every simulated time. `MaxMin` updates them incrementally, and must always reach the fair
// allocation, whatever flows start and end in whatever order.
#include "topology/simulator/max_min.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace ddl::topology {
namespace {

/// Expects that the rates are feasible and that each flow has a bottleneck.
void expect_fair(const MaxMin& shares, const FlowPaths& paths, const std::vector<double>& capacities,
                 const std::set<std::uint32_t>& active) {
  std::vector<double> load(capacities.size());
  std::vector<double> highest(capacities.size());
  for (const std::uint32_t flow : active) {
    EXPECT_GT(shares.rate(flow), 0);
    for (const std::uint32_t resource : paths.of(flow)) {
      load[resource] += shares.rate(flow);
      highest[resource] = std::max(highest[resource], shares.rate(flow));
    }
  }
  for (std::size_t i = 0; i < capacities.size(); ++i) EXPECT_LE(load[i], capacities[i] * (1 + 1e-8));
  for (const std::uint32_t flow : active) {
    EXPECT_TRUE(std::ranges::any_of(paths.of(flow),
                                    [&](std::uint32_t resource) {
                                      return load[resource] >= capacities[resource] * (1 - 1e-8) &&
                                             shares.rate(flow) >= highest[resource] * (1 - 1e-8);
                                    }))
        << "flow " << flow << " has no bottleneck";
  }
}

TEST(MaxMin, IsFairWhateverComesAndGoes) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return random() % n; };
    const std::size_t resources = 1 + below(30);
    const std::size_t flows = 1 + below(80);
    std::vector<double> capacities;
    for (std::size_t i = 0; i < resources; ++i) {
      capacities.push_back(seed % 2 == 0 ? 10.0 * static_cast<double>(1 + below(3))
                                         : 1 + static_cast<double>(below(100000)) / 1000);
    }
    FlowPaths paths;
    for (std::size_t i = 0; i < flows; ++i) {
      std::set<std::uint32_t> path;
      const std::size_t length = 1 + below(4);
      for (std::size_t hop = 0; hop < length; ++hop)
        path.insert(static_cast<std::uint32_t>(below(resources)));
      paths.resources.insert(paths.resources.end(), path.begin(), path.end());
      paths.begin.push_back(static_cast<std::uint32_t>(paths.resources.size()));
    }
    MaxMin shares(capacities, paths);
    std::set<std::uint32_t> active;
    std::vector<double> known(flows, 0);
    for (int instant = 0; instant < 100; ++instant) {
      std::set<std::uint32_t> may_stop = active;
      for (std::size_t change = 1 + below(4); change > 0; --change) {
        const auto flow = static_cast<std::uint32_t>(below(flows));
        if (!active.contains(flow)) {
          active.insert(flow);
          may_stop.erase(flow);
          shares.start(flow);
        } else if (may_stop.contains(flow)) {
          active.erase(flow);
          shares.stop(flow);
        }
      }
      for (const std::uint32_t flow : shares.settle()) known[flow] = shares.rate(flow);
      expect_fair(shares, paths, capacities, active);
      for (const std::uint32_t flow : active) EXPECT_EQ(known[flow], shares.rate(flow));
      if (HasFailure()) return;
    }
  }
}

TEST(MaxMin, FollowsAChangeAlongAChain) {
  // Flow i crosses resources i and i + 1, as in a ring over hosts: what one flow loses, the next gains.
  constexpr std::uint32_t length = 200;
  std::vector<double> capacities;
  FlowPaths paths;
  std::set<std::uint32_t> active;
  for (std::uint32_t i = 0; i < length; ++i) {
    capacities.push_back(10 + i * 0.01);
    paths.resources.insert(paths.resources.end(), {i, i + 1});
    paths.begin.push_back(static_cast<std::uint32_t>(paths.resources.size()));
    active.insert(i);
  }
  capacities.push_back(20);
  paths.resources.push_back(0);
  paths.begin.push_back(static_cast<std::uint32_t>(paths.resources.size()));
  MaxMin shares(capacities, paths);
  for (const std::uint32_t flow : active) shares.start(flow);
  shares.settle();
  expect_fair(shares, paths, capacities, active);
  const double last = shares.rate(length - 1);
  shares.start(length);
  active.insert(length);
  shares.settle();
  expect_fair(shares, paths, capacities, active);
  EXPECT_GT(std::abs(shares.rate(length - 1) - last), 1e-3);
  shares.stop(length);
  active.erase(length);
  shares.settle();
  expect_fair(shares, paths, capacities, active);
  EXPECT_NEAR(shares.rate(length - 1), last, 1e-9);
}

TEST(MaxMin, LeavesFlowsAloneThatAChangeDoesNotReach) {
  // Flows 0 and 1 share resource a; 2 and 3 share b; 1 and 2 share c, which has more capacity.
  FlowPaths paths;
  paths.resources = {0, 0, 2, 1, 2, 1};
  paths.begin = {0, 1, 3, 5, 6};
  MaxMin shares({10, 10, 100}, paths);
  for (const std::uint32_t flow : {1U, 2U, 3U}) shares.start(flow);
  EXPECT_EQ(shares.settle().size(), 3U);
  EXPECT_EQ(shares.rate(1), 10);
  EXPECT_EQ(shares.rate(2), 5);
  shares.start(0);
  const auto changed = shares.settle();
  EXPECT_EQ(std::set(changed.begin(), changed.end()), (std::set<std::uint32_t>{0, 1}));
  EXPECT_EQ(shares.rate(0), 5);
  EXPECT_EQ(shares.rate(1), 5);
}

}  // namespace
}  // namespace ddl::topology
