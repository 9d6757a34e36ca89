#pragma once

#include <filesystem>
#include <string>

namespace ddl::device {

/// Has the calling thread, and those that it starts, run near a PCI device ("0000:19:00.0"): on the
/// processors that `sysfs` calls local to it, if the thread may now run on all of the machine's. Where
/// somebody has bound it already it is left alone. Returns what was done, or why nothing, in a few words.
std::string bind_near(const std::string& pci_address, const std::filesystem::path& sysfs = "/sys");

}  // namespace ddl::device
