#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/discovery.hpp"

namespace ddl::topology {

/// The first line without trailing white space; nothing if the file cannot be read or is empty.
std::optional<std::string> read_line(const std::filesystem::path& file);
std::optional<long> read_integer(const std::filesystem::path& file);

std::vector<NicDescription> nics_in_sysfs(const std::filesystem::path& sysfs);

/// The place of a PCI address. For a device that sysfs does not list, it holds the address alone.
PciPlace pci_place(const std::filesystem::path& sysfs, const std::string& address);

/// GB/s in one direction, before protocol; `gigatransfers` per second and lane.
double pcie_bandwidth(double gigatransfers, int lanes);

/// The CPUs that the calling thread may run on; CPU 0 if that is unknown.
std::vector<int> own_cpus();

/// Parses the kernel's list format: "0-3,8" is 0, 1, 2, 3, 8. Returns nothing unless the text is such a list,
/// ascending and without repetition, of CPUs up to 65,535. An empty text is an empty list.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

/// `cpus` must be ascending.
std::string format_cpu_list(std::span<const int> cpus);

/// The GPUs that NVML reports, with their places from sysfs. Adds to `notes` what could not be found out; a
/// GPU without a PCI address is left out. Throws `unsupported` if the library is missing or fails.
std::vector<GpuDescription> gpus_by_nvml(const std::string& library, const std::filesystem::path& sysfs,
                                         std::vector<std::string>& notes);

/// Fills in the CPU and the packages, of the machine or of a synthetic description. Throws `invalid_argument`
/// if hwloc refuses the description, and `io` if it cannot read the machine.
void describe_processors(const std::string& synthetic, HostDescription& host);

}  // namespace ddl::topology
