#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ddl/topology/discovery.hpp"

namespace ddl::topology {

/// The GPUs that the library knows, with their place from sysfs. What is missing is told in `notes`; a GPU
/// whose PCI address it does not tell is left out. Throws `unsupported` where the library is missing or
/// fails.
std::vector<GpuDescription> gpus_by_nvml(const std::string& library, const std::filesystem::path& sysfs,
                                         std::vector<std::string>& notes);

}  // namespace ddl::topology
