#pragma once

#include <span>
#include <vector>

#include "ddl/topology/topology.hpp"
#include "topology/simulator/max_min.hpp"

namespace ddl::topology {

/// What flows compete for: channels, or whole links where they are half-duplex.
struct Sharing {
  std::vector<double> capacities;  // bytes/us
  FlowPaths paths;
};

/// `routes[f]` are flow f's channels. Of resources that the same flows use only the narrowest is kept.
Sharing share_channels(const Topology& topology, std::span<const std::span<const Channel>> routes);

}  // namespace ddl::topology
