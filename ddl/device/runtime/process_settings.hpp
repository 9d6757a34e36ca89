#pragma once

#include <string>

namespace ddl::device {

/// CUDA_DEVICE_MAX_CONNECTIONS, the number of a device's hardware queues: the maximum; the default is 8.
inline constexpr int most_connections = 32;
/// CUDA_MODULE_LOADING: loads kernels when CUDA starts; loading on first launch waits for running kernels.
inline constexpr const char* eager = "EAGER";

/// Whether both environment variables have these values.
bool has_cuda_environment() noexcept;

/// Binds the calling thread, and threads that it starts later, to the processors that sysfs calls local to a
/// PCI device ("0000:19:00.0", spelled as in sysfs). Does nothing if the thread is already bound to a part of
/// the machine's processors. Returns a short description of what it did, or why it did nothing.
std::string bind_near(const std::string& pci_address);

}  // namespace ddl::device
