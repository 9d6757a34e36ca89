#pragma once

#include <optional>
#include <span>
#include <string>

#include "ddl/tools/command_line.hpp"
#include "ddl/topology/planner.hpp"
#include "ddl/topology/simulator.hpp"

namespace ddl::tools {

/// The command line of ddl-plan. Each value is checked on its own, without the topology.
struct PlanArguments {
  CommandLine line;                       ///< Has the flags that are only there or not, and files.
  std::string topology = "this machine";  ///< Its name for people.
  std::string device = "auto";            ///< Where the ranks of this machine are.
  std::optional<int> ranks;
  bool round_robin = false;
  std::optional<topology::DeviceCarriers> carriers;  ///< Replace the topology's own.

  topology::PlanRequest request;
  std::string mode_text;  ///< "p:2x2x4"; the decomposition is parsed once the number of ranks is known.
  int root = 0;

  std::size_t candidates = 0;
  double most_transfers = 2e7;
  topology::SimulationOptions simulation;

  [[nodiscard]] bool has(std::string_view flag) const { return line.has(flag); }
};

/// Throws UsageError.
PlanArguments parse_plan_arguments(std::span<const std::string> arguments);

}  // namespace ddl::tools
