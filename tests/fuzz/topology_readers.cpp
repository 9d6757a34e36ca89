// Readers of topologies, plans, measurements, decompositions and modes.
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "ddl/topology/calibrate.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/topology.hpp"
#include "ddl/topology/verifier.hpp"
#include "fuzz/reader.hpp"

namespace ddl::fuzz {
namespace {

using namespace topology;

constexpr std::string_view source = "fuzzed";

void require_source(const Error& error) {
  const std::string_view message = error.what();
  require(message.starts_with(source), "no source: " + std::string(message));
}

template <typename Read>
bool takes_topology(Read read) {
  std::optional<Topology> topology;
  try {
    topology.emplace(read());
  } catch (const Error& error) {
    require_found_and_expected(error, ErrorCode::corrupt_data);
    require_source(error);
    return false;
  }
  require(topology_from_json(to_json(*topology), source) == *topology, "does not come back equal");
  const auto& devices = topology->devices();
  require(topology->route(devices.front(), devices.back()).empty() == (devices.size() == 1), "no route");
  return true;
}

bool takes_topology_json(std::string_view bytes) {
  return takes_topology([&] { return topology_from_json(bytes, source); });
}

bool takes_nccl_xml(std::string_view bytes) {
  const std::array<std::string, 1> texts{std::string(bytes)};
  const std::array<std::string, 1> sources{std::string(source)};
  return takes_topology([&] { return topology_from_nccl_xml(texts, sources); });
}

bool takes_measurements(std::string_view bytes) {
  static const Topology topology = make_preset("ethernet:2x2");
  std::vector<Measurement> measurements;
  try {
    measurements = measurements_from_json(bytes, source, topology);
  } catch (const Error& error) {
    require_message(error, ErrorCode::corrupt_data);
    require_source(error);
    return false;
  }
  require(measurements_from_json(to_json(measurements, topology), source, topology) == measurements,
          "does not come back equal");
  require(calibrated(topology, measurements).devices() == topology.devices(), "other devices");
  return true;
}

/// A small plan that is accepted must also be lowered to a schedule that verifies.
bool takes_plan(std::string_view bytes) {
  std::optional<Plan> plan;
  try {
    plan.emplace(plan_from_json(bytes, source));
  } catch (const Error& error) {
    require_message(error, ErrorCode::corrupt_data);
    require_source(error);
    const std::string_view message = error.what();
    if (message.find(" positions, but there") == message.npos) {
      require_found_and_expected(error, ErrorCode::corrupt_data);
    }
    return false;
  }
  require_valid(*plan);
  require(plan_from_json(to_json(*plan), source) == *plan, "does not come back equal");
  require(!summary(*plan).empty() && !to_text(*plan).empty(), "nothing to read");
  if (plan->decomposition.ranks() <= 16) {
    // Few elements, whatever the number of chunks.
    const std::size_t count = has_pieces(plan->collective) ? 2 * plan->order.size() : 7;
    const Verdict verdict = verify(lower_all(*plan, count, plan->decomposition.ranks() - 1));
    require(verdict.ok, verdict.problem);
  }
  return true;
}

/// The number of positions in the message about a well-formed decomposition with the wrong product.
std::optional<int> positions_in(std::string_view message) {
  constexpr std::string_view start = "decomposition ";
  const auto has = message.find(" has ");
  if (!message.starts_with(start) || message.substr(start.size()).starts_with('\'') || has == message.npos) {
    return {};  // quoted text may contain anything
  }
  const std::string_view number = message.substr(has + 5);
  int positions = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), positions);
  require(error == std::errc{} && std::string_view(end).starts_with(" positions, but there are -1 ranks"),
          "which numbers? " + std::string(message));
  return positions;
}

bool takes_decomposition(std::string_view bytes) {
  std::optional<int> positions;
  try {
    Decomposition::parse(bytes, -1);
    require(false, "a grid of -1 ranks");
  } catch (const Error& error) {
    require_message(error, ErrorCode::invalid_argument);
    positions = positions_in(error.what());
    if (!positions) {
      require_found_and_expected(error, ErrorCode::invalid_argument);
      return false;
    }
  }
  const Decomposition grid = Decomposition::parse(bytes, *positions);
  require(grid.ranks() == *positions, "another number of ranks");
  require(grid.group_begin(grid.groups()) == grid.ranks(), "groups do not fill the grid");
  require(grid.group_of(grid.ranks() - 1) == grid.groups() - 1, "the last rank is not in the last group");
  require(Decomposition::parse(to_string(grid), *positions) == grid, "does not come back equal");
  return true;
}

bool takes_mode(std::string_view bytes) {
  try {
    const Mode mode = mode_from_letter(bytes);
    require(bytes == std::string(1, letter_of(mode)), "taken for " + std::string(to_string(mode)));
  } catch (const Error& error) {
    require_message(error, ErrorCode::invalid_argument);
    require(std::string_view("prnbcm").find(bytes) == std::string_view::npos || bytes.size() != 1,
            "a letter was refused");
    return false;
  }
  return true;
}

}  // namespace

std::span<const Reader> readers() {
  static constexpr std::array all = {
      Reader{"decomposition", takes_decomposition}, Reader{"json", takes_topology_json},
      Reader{"measurements", takes_measurements},   Reader{"mode", takes_mode},
      Reader{"nccl_xml", takes_nccl_xml},           Reader{"plan_json", takes_plan},
  };
  return all;
}

}  // namespace ddl::fuzz
