#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/discovery.hpp"

namespace ddl::topology {

/// The first line without white space at its end; nothing if the file cannot be read or is empty.
std::optional<std::string> read_line(const std::filesystem::path& file);
std::optional<long> read_integer(const std::filesystem::path& file);

std::vector<NicDescription> nics_in_sysfs(const std::filesystem::path& sysfs);

/// By a PCI address. A device that sysfs does not know has just its address.
PciPlace pci_place(const std::filesystem::path& sysfs, const std::string& address);

/// The class code of a PCI device, e.g. 0x068000 for an NVSwitch; nothing if unknown.
std::optional<unsigned> pci_class(const std::filesystem::path& sysfs, const std::string& address);

/// GB/s in one direction; `gigatransfers` a lane and second.
double pcie_bandwidth(double gigatransfers, int lanes);

/// Those that the calling thread may run on; the first one if that is not known.
std::vector<int> own_cpus();

/// The kernel's list format: "0-3,8" is 0, 1, 2, 3, 8. Ascending, without repetition. Nothing if the text
/// is not such a list or names a CPU above 65,535; an empty text is an empty list.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

/// `cpus` ascending.
std::string format_cpu_list(std::span<const int> cpus);

}  // namespace ddl::topology
