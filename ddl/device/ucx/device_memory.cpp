#include "ddl/device/ucx/network_calls.hpp"

namespace ddl::device {

bool carries_device_memory(const collectives::UcxNetwork& network) { return network.carries_device_memory(); }

}  // namespace ddl::device
