// Measuring the paths between ranks. Otherwise plans would be chosen by figures of the wrong links.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ddl/context.hpp"

namespace ddl {
namespace {

using topology::Measurement;
using topology::WayKind;

std::vector<Measurement> measure(int ranks, const InProcessOptions& options) {
  std::vector<std::vector<Measurement>> results(static_cast<std::size_t>(ranks));
  run_in_process(
      ranks,
      [&](Context& context) {
        const auto plan_before =
            context.communicator().plan(topology::Collective::all_reduce, 1024, DataType::f32);
        results[static_cast<std::size_t>(context.rank())] = context.measure_ways();
        // The measurement does not disturb later calls, and plans are unchanged.
        std::vector<float> values(300, 1);
        context.communicator().all_reduce(std::span(values));
        EXPECT_EQ(values, std::vector<float>(300, static_cast<float>(ranks)));
        EXPECT_EQ(context.communicator().plan(topology::Collective::all_reduce, 1024, DataType::f32),
                  plan_before);
        const topology::Topology calibrated =
            topology::calibrated(*context.topology(), results[static_cast<std::size_t>(context.rank())]);
        EXPECT_EQ(calibrated.devices(), context.topology()->devices());
      },
      options);
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
  for (const Measurement& m : results[0]) {
    EXPECT_GE(m.latency, 0);
    EXPECT_LT(m.latency, 1e6);
    EXPECT_GT(m.bandwidth, 1e-6);
    EXPECT_LT(m.bandwidth, 1e6);
  }
  return results[0];
}

struct Way {
  WayKind kind;
  int from;
  int to;
  friend bool operator==(const Way&, const Way&) = default;
};

std::vector<Way> ways_of(const std::vector<Measurement>& measurements) {
  std::vector<Way> ways;
  for (const Measurement& m : measurements) ways.push_back({m.way, m.from, m.to});
  return ways;
}

TEST(Probe, MeasuresEachKindOfWayOnceBetweenTheRightRanks) {
  InProcessOptions options;
  options.context.deadline = std::chrono::seconds(60);
  options.hosts = {"a", "b", "a", "b", "b"};
  options.context.topology =
      "ethernet:2x3";  // its hosts have ranks 0 to 2 and 3 to 5, whatever their real hosts
  EXPECT_EQ(ways_of(measure(5, options)),
            (std::vector<Way>{{WayKind::inside_package, 0, 1}, {WayKind::between_hosts, 0, 3}}));
  options.hosts.clear();
  options.context.topology = "ac922";  // two packages with two GPUs each
  EXPECT_EQ(ways_of(measure(4, options)),
            (std::vector<Way>{{WayKind::inside_package, 0, 1}, {WayKind::between_packages, 0, 2}}));
  options.context.topology = "ethernet:3x1";
  EXPECT_EQ(ways_of(measure(3, options)), (std::vector<Way>{{WayKind::between_hosts, 0, 1}}));
}

TEST(Probe, OneRankHasNothingToMeasure) { EXPECT_TRUE(measure(1, {}).empty()); }

}  // namespace
}  // namespace ddl
