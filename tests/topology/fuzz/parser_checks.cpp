#include "topology/fuzz/parser_checks.hpp"

#include <array>
#include <optional>
#include <stdexcept>
#include <string>

#include "ddl/error.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::topology {
namespace {

constexpr std::string_view source = "fuzzed";

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

template <typename Read>
bool check(Read read) {
  std::optional<Topology> topology;
  try {
    topology.emplace(read());
  } catch (const Error& error) {
    const std::string_view message = error.what();
    require(error.code() == ErrorCode::corrupt_data, "wrong code: " + std::string(message));
    require(message.starts_with(source), "no source: " + std::string(message));
    require(message.find("found") != message.npos && message.find("expected") != message.npos,
            "neither found nor expected: " + std::string(message));
    require(message.size() < 2000, "a message of " + std::to_string(message.size()) + " bytes");
    return false;
  }
  require(topology_from_json(to_json(*topology), source) == *topology, "does not come back equal");
  const auto& devices = topology->devices();
  require(topology->route(devices.front(), devices.back()).empty() == (devices.size() == 1), "no route");
  return true;
}

}  // namespace

bool check_topology_from_json(std::string_view bytes) {
  return check([&] { return topology_from_json(bytes, source); });
}

bool check_topology_from_nccl_xml(std::string_view bytes) {
  const std::array<std::string, 1> texts{std::string(bytes)};
  const std::array<std::string, 1> sources{std::string(source)};
  return check([&] { return topology_from_nccl_xml(texts, sources); });
}

}  // namespace ddl::topology
