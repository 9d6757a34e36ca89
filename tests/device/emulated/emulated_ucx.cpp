// The memory of emulated devices is the host's: every UCX carries it, unless a test is about one that does
// not.

#include "ddl/device/ucx/open_device_network.hpp"
#include "device/emulated/emulated_cuda.hpp"

namespace ddl::device {

bool carries_device_memory(const collectives::UcxNetwork&) { return emulated_cuda::machine().ucx; }

}  // namespace ddl::device
