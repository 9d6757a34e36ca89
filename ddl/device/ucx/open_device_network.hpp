#pragma once

#include <memory>

#include "collectives/transports/network/ucx_network.hpp"
#include "ddl/context.hpp"

namespace ddl::device {

/// Whether the network accepts pointers to device memory. Tests on emulated devices, whose memory is the
/// host's, define their own version.
bool carries_device_memory(const collectives::UcxNetwork& network);

/// Opens and connects a UCX network beside the context's own, and checks that it transfers device memory
/// between ranks. Collective. Throws an agreed `unsupported` if UCX cannot be used, does not know device
/// memory, or delivers wrong data.
std::unique_ptr<collectives::UcxNetwork> open_device_network(const Context& context);

}  // namespace ddl::device
