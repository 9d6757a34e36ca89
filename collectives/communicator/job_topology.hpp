#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/system/bootstrap.hpp"
#include "ddl/topology/discovery.hpp"
#include "ddl/topology/rank_map.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::collectives {

/// What a job's ranks run on; the same on all ranks.
struct JobTopology {
  std::shared_ptr<const topology::Topology> topology;
  std::vector<std::string> warnings;  ///< What could not be discovered, and what is used instead.
  std::vector<std::string> notes;     ///< What discovery could not determine.
};

using DiscoverHost = std::function<topology::HostDescription()>;

/// Collective. The lowest rank of each host describes it; all ranks get all descriptions and merge them.
/// Device r is a core of rank r's host. A host that cannot be described counts as one package with a core per
/// rank, and causes a warning. Throws `mismatch` on all ranks if their topologies differ.
JobTopology discover_job(Bootstrap& bootstrap, const topology::RankMap& map, const DiscoverHost& discover);

/// Like `discover_job` for ranks on GPUs: device r is the GPU of rank r. Each rank describes its own GPU; the
/// host's description adds what it knows about it (NVLinks, place on PCIe).
JobTopology discover_devices(Bootstrap& bootstrap, const topology::RankMap& map,
                             const topology::GpuDescription& own, const DiscoverHost& discover);

/// Like `discover_job` for ranks that are all in this process: every host is described as this machine.
JobTopology discover_in_process(const topology::RankMap& map, const DiscoverHost& discover);

/// Collective. Gives every rank the topology that rank 0 loads. An exception of `load` is thrown on all
/// ranks.
JobTopology share_topology(Bootstrap& bootstrap, const std::function<topology::Topology()>& load);

/// Whether the first devices are grouped into hosts like the ranks.
bool has_same_hosts(const topology::Topology& topology, const topology::RankMap& map);

}  // namespace ddl::collectives
