// Topologies with measured figures. Otherwise the planner would use other figures than were measured.

#include "ddl/topology/calibrate.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "support/thrown_error.hpp"

namespace ddl::topology {
namespace {

using test::error_of;

struct Way {
  double latency = 0;
  double bandwidth = std::numeric_limits<double>::infinity();
};

Way way(const Topology& topology, int from, int to) {
  const auto node = [&](int device) { return topology.devices()[static_cast<std::size_t>(device)]; };
  Way result;
  for (const Channel channel : topology.route(node(from), node(to))) {
    const Link& link = topology.links()[static_cast<std::size_t>(link_of(channel))];
    result.latency += link.latency;
    result.bandwidth = std::min(result.bandwidth, link.bandwidth);
  }
  return result;
}

/// Two hosts of two packages with two cores each.
Topology two_sockets() {
  std::vector<Node> nodes;
  std::vector<Link> links;
  for (int host = 0; host < 2; ++host) {
    const std::string h = fmt::format("h{}/", host);
    const int first = static_cast<int>(nodes.size());
    nodes.push_back({h + "package0", NodeKind::package, host});
    nodes.push_back({h + "package1", NodeKind::package, host});
    nodes.push_back({h + "nic", NodeKind::nic, host});
    for (int core = 0; core < 4; ++core)
      nodes.push_back({fmt::format("{}cpu{}", h, core), NodeKind::cpu, host});
    links.push_back({first, first + 1, LinkKind::socket, 20, 0.3, Duplex::full});
    links.push_back({first + 2, first, LinkKind::pcie, 16, 0.5, Duplex::full});
    for (int core = 0; core < 4; ++core) {
      links.push_back({first + 3 + core, first + core / 2, LinkKind::memory, 10, 0.1, Duplex::full});
    }
  }
  const int network = static_cast<int>(nodes.size());
  nodes.push_back({"network", NodeKind::network, -1});
  for (const int nic : {2, 9}) links.push_back({nic, network, LinkKind::network, 1.25, 12, Duplex::full});
  return Topology({"a", "b"}, std::move(nodes), std::move(links));
}

const std::vector<Measurement>& measurements() {
  static const std::vector<Measurement> all{{WayKind::between_hosts, 1, 4, 31, 1.1},
                                            {WayKind::inside_package, 0, 1, 0.7, 6.5},
                                            {WayKind::between_packages, 0, 2, 1.9, 12}};
  return all;
}

TEST(Calibrate, EveryWayOfAKindHasTheMeasuredFigures) {
  const Topology result = calibrated(two_sockets(), measurements());
  for (const auto& [from, to] : std::vector<std::pair<int, int>>{{0, 1}, {2, 3}, {6, 7}}) {
    EXPECT_NEAR(way(result, from, to).latency, 0.7, 1e-9);
    EXPECT_NEAR(way(result, from, to).bandwidth, 6.5, 1e-9);
  }
  for (const auto& [from, to] : std::vector<std::pair<int, int>>{{0, 2}, {3, 1}, {5, 6}}) {
    EXPECT_NEAR(way(result, from, to).latency, 1.9, 1e-9);
  }
  EXPECT_NEAR(way(result, 1, 4).latency, 31, 1e-9);
  EXPECT_NEAR(way(result, 0, 5).latency, 31, 1e-9);
  EXPECT_NEAR(way(result, 0, 5).bandwidth, 1.1, 1e-9);
  // The link's bandwidth is that of all pairs together, although one rank's memory is slower.
  EXPECT_NEAR(result.links()[0].bandwidth, 12, 1e-9);
  EXPECT_EQ(result.nodes(), two_sockets().nodes());
  EXPECT_NE(result.hash(), two_sockets().hash());
  EXPECT_EQ(calibrated(two_sockets(), measurements()), result);
  EXPECT_EQ(calibrated(two_sockets(), {}), two_sockets());
}

// A link could get a negative latency if a longer path was measured as faster than a shorter one.
TEST(Calibrate, LatenciesDoNotFallBelowZero) {
  const Topology result =
      calibrated(two_sockets(), std::vector<Measurement>{{WayKind::inside_package, 0, 1, 5, 6},
                                                         {WayKind::between_packages, 0, 2, 1, 6}});
  EXPECT_NEAR(way(result, 0, 1).latency, 5, 1e-9);
  EXPECT_NEAR(way(result, 0, 2).latency, 5, 1e-9);
}

// A second calibration would divide by zero latencies of the first.
TEST(Calibrate, LinksWithoutLatencyShareTheMeasuredOneEvenly) {
  const Topology zero =
      calibrated(two_sockets(), std::vector<Measurement>{{WayKind::inside_package, 0, 1, 0, 6}});
  EXPECT_EQ(way(zero, 0, 1).latency, 0);
  const Topology result = calibrated(zero, measurements());
  EXPECT_NEAR(way(result, 0, 1).latency, 0.7, 1e-9);
  EXPECT_NEAR(way(result, 1, 4).latency, 31, 1e-9);
}

TEST(Calibrate, RefusesWhatCannotHaveBeenMeasured) {
  const Measurement good{WayKind::inside_package, 0, 1, 1, 1};
  const auto refused = [&](auto change) {
    Measurement bad = good;
    change(bad);
    const Error error = error_of([&] { calibrated(two_sockets(), std::span(&bad, 1)); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    return std::string(error.what());
  };
  EXPECT_NE(refused([](Measurement& m) { m.to = 8; }).find("device 8, expected 0 to 7"), std::string::npos);
  EXPECT_NE(refused([](Measurement& m) { m.from = -1; }).find("device -1"), std::string::npos);
  refused([](Measurement& m) { m.to = 0; });
  EXPECT_NE(refused([](Measurement& m) { m.to = 2; }).find("between_packages"), std::string::npos);
  for (const double number : {-1.0, 1e7, std::nan(""), std::numeric_limits<double>::infinity()}) {
    refused([&](Measurement& m) { m.latency = number; });
    refused([&](Measurement& m) { m.bandwidth = number; });
  }
  refused([](Measurement& m) { m.bandwidth = 0; });
  const std::vector<Measurement> twice{good, good};
  EXPECT_EQ(error_of([&] { calibrated(two_sockets(), twice); }).code(), ErrorCode::invalid_argument);
}

TEST(Calibrate, FilesReadBackEqual) {
  const std::string text = to_json(measurements(), two_sockets());
  EXPECT_EQ(measurements_from_json(text, "file", two_sockets()), measurements());
  EXPECT_TRUE(measurements_from_json(to_json({}, two_sockets()), "file", two_sockets()).empty());
}

TEST(Calibrate, DamagedFilesAreRefusedWithThePlaceInThem) {
  const std::string good = to_json(measurements(), two_sockets());
  const auto replaced = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    const std::size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), by);
  };
  struct Bad {
    std::string text;
    const char* message;
  };
  const std::vector<Bad> bad{
      {"", "byte 1: found parse error"},
      {"[]", "top level: found a list, expected an object"},
      {"{}", "no key"},
      {good.substr(0, good.size() / 2), "expected one JSON object, whole"},
      {good + "x", "expected one JSON object, whole"},
      {std::string((64 << 10) + 1, ' '), "65537 bytes"},
      {replaced("\"ddl_measurements\": 1", "\"ddl_measurements\": 2"),
       "ddl_measurements: found 2, expected 1"},
      {replaced("0x", "0y"), "topology_hash: found"},
      {replaced("\"from\": 1", "\"from\": 1.5"), "ways[0].from: found 1.5"},
      {replaced("\"from\": 1", "\"from\": -1"), "ways[0].from: found -1"},
      {replaced("\"from\": 1", "\"from\": 99999999999"), "ways[0].from"},
      {replaced("\"from\": 1", "\"from\": 1, \"from\": 1"), "ways[0]: found key 'from' a second time"},
      {replaced("\"from\": 1,", ""), "ways[0]: found no key 'from'"},
      {replaced("\"from\"", "\"form\""), "ways[0]: found unknown key 'form', expected one of way, from, to"},
      {replaced("between_hosts", "between_stars"),
       "ways[0].way: found 'between_stars', expected one of inside_package"},
      {replaced("\"latency\": 31.0", "\"latency\": \"31\""),
       "ways[0].latency: found '31', expected a number"},
      {replaced("\"latency\": 31.0", "\"latency\": -31.0"), "found a latency of -31"},
      {replaced("inside_package", "between_hosts"), "measurement between_hosts"},
  };
  for (const auto& [text, message] : bad) {
    const Error error = error_of([&] { measurements_from_json(text, "the file", two_sockets()); });
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ErrorCode::corrupt_data) << what;
    EXPECT_TRUE(what.starts_with("the file: ")) << what;
    EXPECT_NE(what.find(message), std::string::npos) << what << "\nexpected: " << message;
  }
  // Any truncation or changed character gives an error of this kind, or valid values.
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char replacement : {'\0', '9', '}', '"', '-'}) {
      std::string text = good;
      text[i] = replacement;
      try {
        calibrated(two_sockets(), measurements_from_json(text, "f", two_sockets()));
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::corrupt_data) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace ddl::topology
