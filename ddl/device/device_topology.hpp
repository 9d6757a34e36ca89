#pragma once

#include <memory>

#include "ddl/context.hpp"
#include "ddl/device/device_table.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::device {

/// What plans for the ranks' devices are made for: the graph of their GPUs, NVLinks, PCIe, NICs and hosts, or
/// what DDL_TOPOLOGY names, if that has GPUs on the same hosts. The same on all ranks. Collective; throws
/// `mismatch`, agreed.
std::shared_ptr<const topology::Topology> device_topology(Context& context, const DeviceTable& devices);

}  // namespace ddl::device
