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

}  // namespace ddl::topology
