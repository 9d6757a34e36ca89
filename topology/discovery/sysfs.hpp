#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ddl/topology/discovery.hpp"

namespace ddl::topology {

/// The first line without white space at its end; nothing if the file cannot be read or is empty.
std::optional<std::string> read_line(const std::filesystem::path& file);
std::optional<long> read_integer(const std::filesystem::path& file);

/// The packages of <sysfs>/devices/system/node; one with the process's CPUs if there is no such folder.
std::vector<PackageDescription> packages_in_sysfs(const std::filesystem::path& sysfs);

std::vector<NicDescription> nics_in_sysfs(const std::filesystem::path& sysfs);

/// By a PCI address. A device that sysfs does not know has just its address.
PciPlace pci_place(const std::filesystem::path& sysfs, const std::string& address);

/// The class code of a PCI device, e.g. 0x068000 for an NVSwitch; nothing if unknown.
std::optional<unsigned> pci_class(const std::filesystem::path& sysfs, const std::string& address);

/// GB/s in one direction; `gigatransfers` a lane and second.
double pcie_bandwidth(double gigatransfers, int lanes);

}  // namespace ddl::topology
