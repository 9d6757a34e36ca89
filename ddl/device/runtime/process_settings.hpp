#pragma once

#include <string>

namespace ddl::device {

/// CUDA_DEVICE_MAX_CONNECTIONS: queues of a device for the work of its streams. The most that there are; 8
/// unless it is set.
inline constexpr int most_connections = 32;
/// CUDA_MODULE_LOADING: kernels are loaded when CUDA starts, and not when they are first launched, which
/// waits for kernels that run.
inline constexpr const char* eager = "EAGER";

/// Whether both are set so.
bool has_cuda_environment() noexcept;

/// Has the calling thread, and those that it starts, run near a PCI device ("0000:19:00.0", as sysfs spells
/// it): on the processors that sysfs calls local to it, if the thread may now run on all of the machine's.
/// Where somebody has bound it already it is left alone. Returns what was done, or why nothing, in a few
/// words.
std::string bind_near(const std::string& pci_address);

}  // namespace ddl::device
