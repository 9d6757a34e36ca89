// Measurements as JSON.
#include <fmt/format.h>

#include "ddl/topology/calibrate.hpp"
#include "topology/json_fields.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {

template <typename Fields, MaybeConst<Measurement> Value>
static void describe(Fields& fields, Value& measurement) {
  constexpr int most_devices = Topology::most_nodes;
  fields("way", measurement.way, all_to<WayKind::between_hosts>);
  fields("from", measurement.from, 0, most_devices);
  fields("to", measurement.to, 0, most_devices);
  fields("latency", measurement.latency);
  fields("bandwidth", measurement.bandwidth);
}

namespace {

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
