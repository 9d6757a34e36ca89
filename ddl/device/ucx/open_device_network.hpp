#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "collectives/transports/network/ucx_network.hpp"
#include "ddl/context.hpp"

namespace ddl::device {

struct FreeDevice {
  void operator()(std::byte* memory) const noexcept { cudaFree(memory); }
};
using DeviceBytes = std::unique_ptr<std::byte, FreeDevice>;

/// Zeros on the device that is selected. Throws `unsupported` if it has no more.
DeviceBytes allocate_bytes(std::size_t bytes);

/// A UCX beside the context's own network, connected, that has brought each rank some of the memory of
/// another one's device. Collective. Throws `unsupported`, agreed, where UCX cannot be used or does not know
/// devices' memory, and where what was sent is not what has come.
std::unique_ptr<collectives::UcxNetwork> open_device_network(Context& context);

}  // namespace ddl::device
