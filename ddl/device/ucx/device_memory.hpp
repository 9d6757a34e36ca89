#pragma once

#include "collectives/transports/network/ucx_network.hpp"

namespace ddl::device {

/// Whether the network takes pointers to the devices' memory as they are. Not of any other memory: tests
/// whose devices are the host's threads have an answer of their own.
bool carries_device_memory(const collectives::UcxNetwork& network);

}  // namespace ddl::device
