#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "topology/discovery/sysfs.hpp"

namespace ddl::topology {
namespace {

/// "0000:03:00.0"; the domain may have more digits.
bool is_pci_address(std::string_view name) {
  const std::size_t n = name.size();
  if (n < 12 || name[n - 2] != '.' || name[n - 5] != ':' || name[n - 8] != ':') return false;
  return std::ranges::all_of(
      name, [](char c) { return c == ':' || c == '.' || std::isxdigit(static_cast<unsigned char>(c)) != 0; });
}

double bandwidth_of(const std::filesystem::path& device) {
  const std::optional<std::string> speed = read_line(device / "max_link_speed");  // "16.0 GT/s PCIe"
  const std::optional<long> lanes = read_integer(device / "max_link_width");
  if (!speed || !lanes || *lanes < 1 || *lanes > 32) return 0;
  return pcie_bandwidth(std::strtod(speed->c_str(), nullptr), static_cast<int>(*lanes));
}

}  // namespace

double pcie_bandwidth(double gigatransfers, int lanes) {
  // 8b/10b encoding up to generation 2, 128b/130b since.
  const double payload = gigatransfers < 8 ? 0.8 : 128.0 / 130.0;
  return gigatransfers * payload / 8 * lanes;
}

PciPlace pci_place(const std::filesystem::path& sysfs, const std::string& address) {
  PciPlace place;
  place.address = address;
  std::error_code error;
  const std::filesystem::path device = std::filesystem::canonical(sysfs / "bus/pci/devices" / address, error);
  if (error) return place;

  // .../pci0000:00/0000:00:01.0/0000:01:00.0: the folders above a device are the bridges above it.
  std::filesystem::path folder = device;
  while (is_pci_address(folder.filename().string())) {
    if (folder != device) place.bridges.insert(place.bridges.begin(), folder.filename().string());
    if (const double bandwidth = bandwidth_of(folder); bandwidth > 0) {
      place.bandwidth = place.bandwidth > 0 ? std::min(place.bandwidth, bandwidth) : bandwidth;
    }
    folder = folder.parent_path();
  }
  place.numa_node =
      static_cast<int>(std::clamp(read_integer(device / "numa_node").value_or(-1), -1L, 65'535L));
  return place;
}

std::optional<unsigned> pci_class(const std::filesystem::path& sysfs, const std::string& address) {
  const std::optional<std::string> text = read_line(sysfs / "bus/pci/devices" / address / "class");
  if (!text || !text->starts_with("0x")) return std::nullopt;
  unsigned value = 0;
  const char* const end = text->data() + text->size();
  if (std::from_chars(text->data() + 2, end, value, 16).ptr != end) return std::nullopt;
  return value;
}

}  // namespace ddl::topology
