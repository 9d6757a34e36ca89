#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ddl/topology/discovery.hpp"

namespace ddl::topology {

/// The GPUs that CUDA shows to this process, in the order of their PCI addresses, with their place from
/// sysfs. Calls cuInit and keeps the library loaded: only for processes that have no other way. NVLinks
/// are guessed: one joins each pair with native atomics. What is missing is told in `notes`; a GPU whose
/// PCI address CUDA does not tell is left out. Throws `unsupported` where the driver is missing or fails,
/// or shows no GPU.
std::vector<GpuDescription> gpus_by_cuda(const std::string& library, const std::filesystem::path& sysfs,
                                         std::vector<std::string>& notes);

/// The GPUs that the library knows, with their place from sysfs. What is missing is told in `notes`; a GPU
/// whose PCI address it does not tell is left out. Throws `unsupported` where the library is missing or
/// fails.
std::vector<GpuDescription> gpus_by_nvml(const std::string& library, const std::filesystem::path& sysfs,
                                         std::vector<std::string>& notes);

/// Fills in the CPU and the packages, the machine's or those of a synthetic description. Throws
/// `invalid_argument` if hwloc refuses that, and `io` if it cannot read the machine.
void describe_processors(const std::string& synthetic, HostDescription& host);

}  // namespace ddl::topology
