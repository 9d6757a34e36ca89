#include "ddl/device/device_topology.hpp"

#include <algorithm>
#include <cctype>
#include <string>

#include "collectives/communicator/job_topology.hpp"
#include "ddl/device/context_bootstrap.hpp"
#include "ddl/log.hpp"
#include "ddl/topology/discovery.hpp"

namespace ddl::device {
namespace {

/// The address as sysfs and discovery spell it.
topology::GpuDescription described(const DeviceEntry& entry) {
  topology::GpuDescription gpu;
  gpu.pci.address = entry.pci_address.data();
  std::ranges::transform(gpu.pci.address, gpu.pci.address.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  gpu.model = entry.name.data();
  gpu.compute_capability = 10 * entry.major + entry.minor;
  gpu.memory = entry.memory;
  return gpu;
}

}  // namespace

std::shared_ptr<const topology::Topology> device_topology(Context& context, const DeviceTable& devices) {
  if (!context.options().topology.empty()) return context.topology();
  ContextBootstrap ranks(context);
  const collectives::JobTopology found = collectives::discover_devices(
      ranks, context.communicator().rank_map(), described(devices.of(context.rank())),
      [] { return topology::discover_host(); });
  if (context.is_root()) {
    for (const std::string& warning : found.warnings) context.log().warning(warning);
    for (const std::string& note : found.notes) context.log().debug(note);
  }
  return found.topology;
}

}  // namespace ddl::device
