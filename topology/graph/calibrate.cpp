#include "ddl/topology/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ddl/error.hpp"

namespace ddl::topology {
namespace {

[[noreturn]] void refuse(const Measurement& measurement, const std::string& reason) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("measurement {}: {}", to_string(measurement.way), reason));
}

void check(const Topology& topology, std::span<const Measurement> measurements) {
  const auto devices = static_cast<int>(topology.devices().size());
  for (std::size_t i = 0; i < measurements.size(); ++i) {
    const Measurement& m = measurements[i];
    for (const int device : {m.from, m.to}) {
      if (device < 0 || device >= devices) {
        refuse(m, fmt::format("found device {}, expected 0 to {}", device, devices - 1));
      }
    }
    if (m.from == m.to) refuse(m, fmt::format("found device {} at both ends, expected two", m.from));
    if (!(m.latency >= 0 && m.latency <= Topology::highest_latency)) {
      refuse(m,
             fmt::format("found a latency of {}, expected 0 to {} us", m.latency, Topology::highest_latency));
    }
    if (!(m.bandwidth > 0 && m.bandwidth <= Topology::highest_bandwidth)) {
      refuse(m, fmt::format("found a bandwidth of {}, expected more than 0 and at most {} GB/s", m.bandwidth,
                            Topology::highest_bandwidth));
    }
    const WayKind way = way_between(topology, topology.devices()[static_cast<std::size_t>(m.from)],
                                    topology.devices()[static_cast<std::size_t>(m.to)]);
    if (way != m.way) {
      refuse(m, fmt::format("found devices {} and {}, between which the way is {}", m.from, m.to,
                            to_string(way)));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (measurements[j].way == m.way) refuse(m, "found a second one, expected one of each kind");
    }
  }
}

class Calibration {
 public:
  explicit Calibration(const Topology& topology) : topology_(topology), links_(topology.links()) {}

  void apply(const Measurement& m) {
    const auto& devices = topology_.devices();
    const std::vector<Channel> route =
        topology_.route(devices[static_cast<std::size_t>(m.from)], devices[static_cast<std::size_t>(m.to)]);
    double others = 0;  // latency of the way's links of other kinds
    double own = 0;
    int own_links = 0;
    double narrowest = std::numeric_limits<double>::infinity();
    for (const Channel channel : route) {
      const int index = link_of(channel);
      const Link& link = links_[static_cast<std::size_t>(index)];
      if (way_over(topology_, index) != m.way) {
        others += link.latency;
        continue;
      }
      own += link.latency;
      narrowest = std::min(narrowest, link.bandwidth);
      ++own_links;
    }
    if (own_links == 0) return;
    const double wanted = std::max(0.0, m.latency - others);
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (way_over(topology_, static_cast<int>(i)) != m.way) continue;
      Link& link = links_[i];
      link.latency = own > 0 ? link.latency * (wanted / own) : wanted / own_links;
      link.latency = std::min(link.latency, Topology::highest_latency);
      link.bandwidth = std::clamp(link.bandwidth * (m.bandwidth / narrowest),
                                  std::numeric_limits<double>::min(), Topology::highest_bandwidth);
    }
  }

  Topology finish() {
    Topology result(topology_.hosts(), topology_.nodes(), std::move(links_));
    return topology_.carriers() ? result.with_carriers(*topology_.carriers()) : result;
  }

 private:
  const Topology& topology_;
  std::vector<Link> links_;
};

}  // namespace

std::string_view to_string(WayKind kind) noexcept {
  switch (kind) {
    case WayKind::inside_package:
      return "inside_package";
    case WayKind::between_packages:
      return "between_packages";
    case WayKind::between_hosts:
      return "between_hosts";
  }
  return "?";
}

WayKind way_over(const Topology& topology, int link_index) {
  const Link& link = topology.links()[static_cast<std::size_t>(link_index)];
  const auto kind = [&](int node) { return topology.nodes()[static_cast<std::size_t>(node)].kind; };
  if (link.kind == LinkKind::network || kind(link.from) == NodeKind::nic || kind(link.to) == NodeKind::nic) {
    return WayKind::between_hosts;
  }
  return link.kind == LinkKind::socket ? WayKind::between_packages : WayKind::inside_package;
}

WayKind way_between(const Topology& topology, int from_node, int to_node) {
  WayKind widest = WayKind::inside_package;
  for (const Channel channel : topology.route(from_node, to_node)) {
    widest = std::max(widest, way_over(topology, link_of(channel)));
  }
  return widest;
}

Topology calibrated(const Topology& topology, std::span<const Measurement> measurements) {
  check(topology, measurements);
  Calibration calibration(topology);
  for (const WayKind way : {WayKind::inside_package, WayKind::between_packages, WayKind::between_hosts}) {
    const auto found = std::ranges::find(measurements, way, &Measurement::way);
    if (found != measurements.end()) calibration.apply(*found);
  }
  return calibration.finish();
}

}  // namespace ddl::topology
