#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/system/bootstrap.hpp"
#include "ddl/topology/discovery.hpp"
#include "ddl/topology/rank_map.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::collectives {

/// What a job's ranks run on; the same on all of them.
struct JobTopology {
  std::shared_ptr<const topology::Topology> topology;
  std::vector<std::string> warnings;  ///< What could not be had, and what is used instead.
  std::vector<std::string> notes;     ///< What discovery could not find out.
};

using DiscoverHost = std::function<topology::HostDescription()>;

/// Collective. The lowest rank of each host describes it, all get all descriptions and join them: rank r on
/// a core of its host is device r. A host that cannot be described counts as one package with a core for each
/// of its ranks; that is a warning. Throws `mismatch`, agreed, if the ranks do not end with the same
/// topology.
JobTopology discover_job(Bootstrap& bootstrap, const topology::RankMap& map, const DiscoverHost& discover);

/// The same for ranks on GPUs: device r is the GPU of rank r, which describes its own; what its host knows of
/// it besides (NVLinks, the place on PCIe) counts too.
JobTopology discover_devices(Bootstrap& bootstrap, const topology::RankMap& map,
                             const topology::GpuDescription& own, const DiscoverHost& discover);

/// The same as `discover_job` for ranks that are all in this process: every host is described as this
/// machine.
JobTopology discover_in_process(const topology::RankMap& map, const DiscoverHost& discover);

/// Collective. Rank 0's topology, on every rank. What `load` throws there is thrown everywhere, agreed.
JobTopology share_topology(Bootstrap& bootstrap, const std::function<topology::Topology()>& load);

/// Whether the first devices are grouped into hosts as the ranks are.
bool has_same_hosts(const topology::Topology& topology, const topology::RankMap& map);

}  // namespace ddl::collectives
