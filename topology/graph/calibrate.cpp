#include "ddl/topology/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "topology/json_fields.hpp"
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

constexpr std::size_t longest_text = std::size_t{64} << 10;

struct MeasurementFile {
  std::uint64_t topology_hash = 0;
  std::vector<Measurement> ways;
};

template <typename Fields, MaybeConst<MeasurementFile> File>
void describe(Fields& fields, File& file) {
  constexpr std::size_t most_ways = 3;
  fields.version("ddl_measurements", 1);
  fields.text("topology_hash", file.topology_hash, hexadecimal, from_hexadecimal, expected_hexadecimal);
  fields("ways", file.ways, most_ways);
}

}  // namespace

std::string_view to_string(WayKind kind) noexcept {
  constexpr std::array<std::string_view, 3> names = {"inside_package", "between_packages", "between_hosts"};
  return name_in(names, kind);
}

WayKind way_over(const Topology& topology, int link_index) {
  const Link& link = topology.link(link_index);
  const auto is_nic = [&](int node) { return topology.node(node).kind == NodeKind::nic; };
  if (link.kind == LinkKind::network || is_nic(link.from) || is_nic(link.to)) return WayKind::between_hosts;
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

template <typename Fields, MaybeConst<Measurement> Value>
static void describe(Fields& fields, Value& measurement) {
  constexpr int most_devices = Topology::most_nodes;
  fields("way", measurement.way, all_to<WayKind::between_hosts>);
  fields("from", measurement.from, 0, most_devices);
  fields("to", measurement.to, 0, most_devices);
  fields("latency", measurement.latency);
  fields("bandwidth", measurement.bandwidth);
}

std::string to_json(std::span<const Measurement> measurements, const Topology& topology) {
  const MeasurementFile file{topology.hash(), {measurements.begin(), measurements.end()}};
  return JsonFieldWriter::json(file).dump(2) + "\n";
}

std::vector<Measurement> measurements_from_json(std::string_view text, std::string_view source,
                                                const Topology& topology) {
  if (text.size() > longest_text) {
    fail_with(ErrorCode::corrupt_data, "{}: found {} bytes, expected at most {}", source, text.size(),
              longest_text);
  }
  MeasurementFile file;
  read_json(text, source, JsonFieldReader::slot(file));
  if (file.topology_hash != topology.hash()) {
    fail_with(ErrorCode::corrupt_data, "{}: topology_hash: found {}, expected {}, this job's", source,
              hexadecimal(file.topology_hash), hexadecimal(topology.hash()));
  }
  check_source(source, [&] { calibrated(topology, file.ways); });
  return std::move(file.ways);
}

}  // namespace ddl::topology
