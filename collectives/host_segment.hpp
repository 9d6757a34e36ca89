#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/channel_region.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl::collectives {

/// What became of the shared segments of all hosts, as every rank sees it.
struct HostSegments {
  /// This rank's; null if it is alone on its host, or if its host's ranks could not share.
  std::shared_ptr<const ChannelRegion> own;
  /// By host: why its ranks cannot share memory; empty if they can.
  std::vector<std::string> obstacles;
};

/// Collective. The lowest rank of each host creates a segment (an anonymous file) and hands it to the
/// host's other ranks over a Unix socket without a place in the file system, so that nothing is left
/// behind however the job ends. All ranks of a host use the segment, or none.
HostSegments open_host_segments(Bootstrap& bootstrap, const topology::RankMap& map);

}  // namespace ddl::collectives
