#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// The part of a route that a node is in.
enum class Leg : std::uint8_t {
  leaving,   ///< In the host where the route starts.
  between,   ///< On network nodes.
  entering,  ///< In the host where the route ends, entered from the network; it may be the starting host.
};

/// One step under the rules of `Topology::route`: the leg after the step from `here` to its neighbour `next`,
/// or nothing if routes must not take it.
inline std::optional<Leg> next_leg(const Node& here, Leg leg, bool is_start, const Node& next, bool is_end) {
  if (is_device(here.kind) && !is_start) return {};
  if (is_device(next.kind) && !is_end) return {};
  if (here.host >= 0 && next.host == here.host) {
    if (leg == Leg::leaving && here.kind == NodeKind::nic && !is_start) return {};
    if (leg == Leg::entering && next.kind == NodeKind::nic && !is_end) return {};
    return leg;
  }
  if (leg == Leg::entering) return {};
  return next.host < 0 ? Leg::between : Leg::entering;
}

/// Looks for two devices without a route between them. Returns which two, or that the graph is too large and
/// irregular to tell. Cost: see Topology's constructor. Needs no host names and no routes.
std::optional<std::string> find_unreachable(const Topology& topology);

}  // namespace ddl::topology
