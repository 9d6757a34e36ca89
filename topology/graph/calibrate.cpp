#include "ddl/topology/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "topology/json_text.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

[[noreturn]] void refuse_measurement(const Measurement& measurement, const std::string& reason) {
  refuse("measurement {}: {}", to_string(measurement.way), reason);
}

void check(const Topology& topology, std::span<const Measurement> measurements) {
  const auto devices = static_cast<int>(topology.devices().size());
  for (std::size_t i = 0; i < measurements.size(); ++i) {
    const Measurement& m = measurements[i];
    for (const int device : {m.from, m.to}) {
      if (device < 0 || device >= devices) {
        refuse_measurement(m, fmt::format("found device {}, expected 0 to {}", device, devices - 1));
      }
    }
    if (m.from == m.to)
      refuse_measurement(m, fmt::format("found device {} at both ends, expected two", m.from));
    if (!(m.latency >= 0 && m.latency <= Topology::highest_latency)) {
      refuse_measurement(
          m, fmt::format("found a latency of {}, expected 0 to {} us", m.latency, Topology::highest_latency));
    }
    if (!(m.bandwidth > 0 && m.bandwidth <= Topology::highest_bandwidth)) {
      refuse_measurement(m, fmt::format("found a bandwidth of {}, expected more than 0 and at most {} GB/s",
                                        m.bandwidth, Topology::highest_bandwidth));
    }
    const WayKind way = way_between(topology, topology.node_of_device(m.from), topology.node_of_device(m.to));
    if (way != m.way) {
      refuse_measurement(m, fmt::format("found devices {} and {}, between which the way is {}", m.from, m.to,
                                        to_string(way)));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (measurements[j].way == m.way)
        refuse_measurement(m, "found a second one, expected one of each kind");
    }
  }
}

/// Scales all links of the measurement's kind.
void apply(const Measurement& m, const Topology& topology, std::vector<Link>& links) {
  double others = 0;  // latency of the route's links of other kinds
  double own = 0;
  int own_links = 0;
  double narrowest = std::numeric_limits<double>::infinity();
  for (const Channel channel :
       topology.route(topology.node_of_device(m.from), topology.node_of_device(m.to))) {
    const int index = link_of(channel);
    const Link& link = links[as_index(index)];
    if (way_over(topology, index) != m.way) {
      others += link.latency;
      continue;
    }
    own += link.latency;
    narrowest = std::min(narrowest, link.bandwidth);
    ++own_links;
  }
  const double wanted = std::max(0.0, m.latency - others);
  for (std::size_t i = 0; i < links.size() && own_links > 0; ++i) {
    if (way_over(topology, static_cast<int>(i)) != m.way) continue;
    Link& link = links[i];
    link.latency = own > 0 ? link.latency * (wanted / own) : wanted / own_links;
    link.latency = std::min(link.latency, Topology::highest_latency);
    link.bandwidth = std::clamp(link.bandwidth * (m.bandwidth / narrowest),
                                std::numeric_limits<double>::min(), Topology::highest_bandwidth);
  }
}

}  // namespace

std::string_view to_string(WayKind kind) noexcept {
  constexpr std::array<std::string_view, 3> names = {"inside_package", "between_packages", "between_hosts"};
  return name_in(names, kind);
}

WayKind way_over(const Topology& topology, int link_index) {
  const Link& link = topology.link(link_index);
  const auto is_nic = [&](int node) { return topology.node(node).kind == NodeKind::nic; };
  if (link.kind == LinkKind::network || is_nic(link.from) || is_nic(link.to)) {
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
  std::vector<Link> links = topology.links();
  for (const WayKind way : {WayKind::inside_package, WayKind::between_packages, WayKind::between_hosts}) {
    const auto found = std::ranges::find(measurements, way, &Measurement::way);
    if (found != measurements.end()) apply(*found, topology, links);
  }
  Topology result(topology.hosts(), topology.nodes(), std::move(links));
  return topology.carriers() ? result.with_carriers(*topology.carriers()) : result;
}

}  // namespace ddl::topology
