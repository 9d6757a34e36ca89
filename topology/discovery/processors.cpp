// CPU, packages and NUMA domains of the host, from hwloc.
#include <hwloc.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "topology/discovery/sysfs.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"

namespace ddl::topology {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

TopologyHandle load(const std::string& synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) fail_with(ErrorCode::io, "hwloc_topology_init failed: out of memory?");
  TopologyHandle topology(raw);
  if (!synthetic.empty() && hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0) {
    refuse(
        "hwloc does not understand the synthetic description '{}'; expected something like "
        "'package:2 numa:2 core:4 pu:2'",
        synthetic);
  }
  if (hwloc_topology_load(raw) != 0) {
    fail_with(ErrorCode::io, "hwloc cannot read this machine's topology: {}", std::strerror(errno));
  }
  return topology;
}

/// hwloc stores the architecture at the root and everything else at the packages.
CpuDescription describe_cpu(hwloc_topology_t topology) {
  const auto info = [](hwloc_obj_t object, const char* name) -> std::string {
    const char* const value = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, name);
    return value == nullptr ? "" : value;
  };
  hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const auto number = [&](const char* name) { return parse_whole<int>(info(package, name)).value_or(0); };
  return {.architecture = info(hwloc_get_root_obj(topology), "Architecture"),
          .vendor = info(package, "CPUVendor"),
          .name = info(package, "CPUModel"),
          .family = number("CPUFamilyNumber"),
          .model = number("CPUModelNumber")};
}

PackageDescription describe_package(hwloc_topology_t topology, hwloc_obj_t numa) {
  PackageDescription package;
  package.numa_node = static_cast<int>(numa->os_index);
  package.memory = numa->attr->numanode.local_memory;
  // A NUMA domain may be a part of a socket, a whole one, or (in virtual machines) several.
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

void describe_processors(const std::string& synthetic, HostDescription& host) {
  const TopologyHandle topology = load(synthetic);
  host.cpu = describe_cpu(topology.get());
  hwloc_obj_t numa = nullptr;
  while ((numa = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, numa)) != nullptr) {
    if (!hwloc_bitmap_iszero(numa->cpuset)) host.packages.push_back(describe_package(topology.get(), numa));
  }
}

}  // namespace ddl::topology
