#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "ddl/error.hpp"
#include "topology/discovery/sources.hpp"

namespace ddl::topology {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

TopologyHandle load(const std::string& synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    throw Error(ErrorCode::io, "hwloc_topology_init failed: out of memory?");
  TopologyHandle topology(raw);
  if (!synthetic.empty() && hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("hwloc does not understand the synthetic description '{}'; expected something like "
                    "'package:2 numa:2 core:4 pu:2'",
                    synthetic));
  }
  if (hwloc_topology_load(raw) != 0) {
    throw Error(ErrorCode::io,
                fmt::format("hwloc cannot read this machine's topology: {}", std::strerror(errno)));
  }
  return topology;
}

PackageDescription describe(hwloc_topology_t topology, hwloc_obj_t numa) {
  PackageDescription package;
  package.numa_node = static_cast<int>(numa->os_index);
  package.memory = numa->attr->numanode.local_memory;
  // The domain may be a part of a socket, be one, or hold several (in virtual machines).
  hwloc_obj_t socket = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, numa);
  if (socket == nullptr) {
    socket = hwloc_get_obj_inside_cpuset_by_type(topology, numa->cpuset, HWLOC_OBJ_PACKAGE, 0);
  }
  if (socket != nullptr) {
    package.socket =
        static_cast<int>(socket->os_index == HWLOC_UNKNOWN_INDEX ? socket->logical_index : socket->os_index);
  }
  for (int cpu = hwloc_bitmap_first(numa->cpuset); cpu != -1; cpu = hwloc_bitmap_next(numa->cpuset, cpu)) {
    package.cpus.push_back(cpu);
  }
  const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, numa->cpuset, HWLOC_OBJ_CORE);
  package.cores = cores > 0 ? cores : static_cast<int>(package.cpus.size());
  return package;
}

}  // namespace

std::vector<PackageDescription> packages_by_hwloc(const std::string& synthetic) {
  const TopologyHandle topology = load(synthetic);
  std::vector<PackageDescription> packages;
  hwloc_obj_t numa = nullptr;
  while ((numa = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, numa)) != nullptr) {
    if (!hwloc_bitmap_iszero(numa->cpuset)) packages.push_back(describe(topology.get(), numa));
  }
  return packages;
}

}  // namespace ddl::topology
