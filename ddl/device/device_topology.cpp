#include "ddl/device/device_topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <string>

#include "collectives/job_topology.hpp"
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
  if (!context.options().topology.empty()) {
    const std::shared_ptr<const topology::Topology> named = context.topology();
    const auto is_gpu = [&](int device) {
      return named->nodes()[static_cast<std::size_t>(device)].kind == topology::NodeKind::gpu;
    };
    const auto own = std::span(named->devices()).first(static_cast<std::size_t>(context.size()));
    if (std::ranges::all_of(own, is_gpu) &&
        collectives::has_same_hosts(*named, context.communicator().rank_map())) {
      return named;
    }
    context.log().info(
        fmt::format("plans on devices are chosen for what is discovered: DDL_TOPOLOGY, {}, groups the ranks "
                    "into other hosts than they are on, or has no GPUs",
                    context.options().topology));
  }
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
