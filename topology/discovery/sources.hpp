#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ddl/topology/discovery.hpp"

namespace ddl::topology {

/// The GPUs that CUDA shows to this process, by PCI address, with their places from sysfs. Calls cuInit and
/// keeps the library loaded, so it is only for processes that cannot use NVML. NVLinks are guessed: one
/// between each pair with native atomics. Adds to `notes` what could not be found out; a GPU without a PCI
/// address is left out. Throws `unsupported` if the driver is missing, fails, or shows no GPU.
std::vector<GpuDescription> gpus_by_cuda(const std::string& library, const std::filesystem::path& sysfs,
                                         std::vector<std::string>& notes);

/// The GPUs that NVML reports, with their places from sysfs. Adds to `notes` what could not be found out; a
/// GPU without a PCI address is left out. Throws `unsupported` if the library is missing or fails.
std::vector<GpuDescription> gpus_by_nvml(const std::string& library, const std::filesystem::path& sysfs,
                                         std::vector<std::string>& notes);

/// Fills in the CPU and the packages, of the machine or of a synthetic description. Throws `invalid_argument`
/// if hwloc refuses the description, and `io` if it cannot read the machine.
void describe_processors(const std::string& synthetic, HostDescription& host);

}  // namespace ddl::topology
