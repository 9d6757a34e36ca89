#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/topology/planner.hpp"
#include "ddl/topology/simulator.hpp"

namespace ddl::tools {

/// The command line of ddl-plan. Each value is checked on its own, without the topology.
struct PlanArguments {
  std::string topology = "this machine";
  std::optional<std::string> topology_source;  ///< A preset, a file, or "-".
  std::string device = "auto";                 ///< Where the ranks of this machine are.
  std::optional<int> ranks;
  bool round_robin = false;
  std::optional<topology::DeviceCarriers> carriers;  ///< Replace the topology's own.

  topology::PlanRequest request;
  std::string mode_text;  ///< "p:2x2x4"; the decomposition is parsed once the number of ranks is known.
  std::optional<std::uint64_t> bytes;
  std::optional<std::string> plan_file;
  int root = 0;

  bool explain = false;
  bool verify = false;
  bool simulate = false;
  bool json = false;
  bool lists_candidates = false;
  std::size_t candidates = 20;
  double most_transfers = 2e7;
  topology::SimulationOptions simulation;
  std::string simulation_conditions;
  std::optional<std::string> trace_file;
  std::optional<std::string> svg_file;
  std::optional<std::string> save_file;

  /// Whether an output file is "-", so that no text may be printed.
  [[nodiscard]] bool standard_output_is_taken() const;
};

/// Throws UsageError.
PlanArguments parse_plan_arguments(std::span<const std::string> arguments);

}  // namespace ddl::tools
