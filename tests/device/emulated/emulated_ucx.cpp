// Emulated device memory is the host's, so every UCX supports it, unless a test requests otherwise.

#include "ddl/device/ucx/network_calls.hpp"
#include "device/emulated/emulated_cuda.hpp"

namespace ddl::device {

bool carries_device_memory(const collectives::UcxNetwork&) { return emulated_cuda::machine().ucx; }

}  // namespace ddl::device
