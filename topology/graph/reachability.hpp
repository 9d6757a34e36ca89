#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// The part of a way that bytes are on.
enum class Leg : std::uint8_t {
  leaving,   ///< In the host where they start.
  between,   ///< On network nodes.
  entering,  ///< In a host reached from outside; the same host as the first where a way uses the network.
};

/// Which nodes may follow one another (the rules of Topology::route): the leg after going from `here` to
/// its neighbour `next`, or nothing if that is not allowed.
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

/// Looks for devices without a route between them; says which, or that the graph is too large and too
/// irregular to tell. Costs as stated at Topology's constructor; uses no hosts' names and no routes.
std::optional<std::string> find_unreachable(const Topology& topology);

}  // namespace ddl::topology
