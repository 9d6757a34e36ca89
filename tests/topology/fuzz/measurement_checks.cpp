#include "topology/fuzz/measurement_checks.hpp"

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/topology/calibrate.hpp"

namespace ddl::topology {

bool check_measurements_from_json(std::string_view bytes) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw std::logic_error(what);
  };
  const Topology topology = make_preset("ethernet:2x2");
  std::vector<Measurement> measurements;
  try {
    measurements = measurements_from_json(bytes, "fuzzed", topology);
  } catch (const Error& error) {
    const std::string_view message = error.what();
    require(error.code() == ErrorCode::corrupt_data, "wrong code: " + std::string(message));
    require(message.starts_with("fuzzed: ") && message.size() < 1000, std::string(message));
    for (const char c : message)
      require(c >= ' ' && c <= '~', "orders for a terminal: " + std::string(message));
    return false;
  }
  require(measurements_from_json(to_json(measurements, topology), "fuzzed", topology) == measurements,
          "does not come back equal");
  require(calibrated(topology, measurements).devices() == topology.devices(), "other devices");
  return true;
}

}  // namespace ddl::topology
