#pragma once

#include <memory>

#include "collectives/transports/network/ucx_network.hpp"
#include "ddl/context.hpp"

namespace ddl::device {

/// Whether the network takes pointers to the devices' memory as they are. Not of any other memory: tests
/// whose devices are the host's threads have an answer of their own.
bool carries_device_memory(const collectives::UcxNetwork& network);

/// A UCX beside the context's own network, connected, that has brought each rank some of the memory of
/// another one's device. Collective. Throws `unsupported`, agreed, where UCX cannot be used or does not know
/// devices' memory, and where what was sent is not what has come.
std::unique_ptr<collectives::UcxNetwork> open_device_network(const Context& context);

}  // namespace ddl::device
