#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/memory/host_memory.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl::collectives {

/// What became of the shared memory of all hosts, as every rank sees it.
struct HostMemories {
  /// This rank's; null if it is alone on its host, or if its host's ranks could not share. Its members are
  /// the host's ranks, ascending.
  std::shared_ptr<HostMemory> own;
  /// This rank's index among the members; 0 without memory.
  int member = 0;
  /// By host: why its ranks cannot share memory; empty if they can.
  std::vector<std::string> obstacles;
};

/// Collective. The lowest rank of each host creates the memory and hands it, with all members' eventfds, to
/// the host's other ranks over a Unix socket without a place in the file system, so that nothing is left
/// behind however the job ends. All ranks of a host use the memory, or none. With m ranks on a host each of
/// them needs m file descriptors, the lowest one 2m.
///
/// Throws nothing of its own: what goes wrong on a host is its obstacle.
HostMemories open_host_memory(Bootstrap& bootstrap, const topology::RankMap& map);

}  // namespace ddl::collectives
