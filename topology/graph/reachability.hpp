#pragma once

#include <optional>
#include <string>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// Looks for devices without a route between them; says which, or that the graph is too large and too
/// irregular to tell. Costs as stated at Topology's constructor; uses no hosts' names and no routes.
std::optional<std::string> find_unreachable(const Topology& topology);

}  // namespace ddl::topology
