#include "topology/discovery/sysfs.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fstream>

#include "topology/text.hpp"

namespace ddl::topology {

std::optional<std::string> read_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  if (!std::getline(stream, line)) return std::nullopt;
  line.erase(line.find_last_not_of(" \t\r\n") + 1);
  return line;
}

std::optional<long> read_integer(const std::filesystem::path& file) {
  return parse_whole<long>(read_line(file).value_or(""));
}

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  constexpr int largest_cpu = 65'535;
  std::vector<int> cpus;
  if (text.empty()) return cpus;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t dash = part.find('-');
    const auto first = parse_whole<int>(part.substr(0, dash));
    const auto last = dash == part.npos ? first : parse_whole<int>(part.substr(dash + 1));
    const int least = cpus.empty() ? 0 : cpus.back() + 1;
    if (!first || !last || *first < least || *last < *first || *last > largest_cpu) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::string format_cpu_list(std::span<const int> cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += end - i == 1 ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[end - 1]);
    i = end;
  }
  return text;
}

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

// Values of <linux/if_arp.h>.
constexpr long ethernet = 1;
constexpr long infiniband = 32;

/// The PCI device of an interface: the nearest folder, from `interface`/device upwards, that is a PCI device.
/// A virtio interface, for instance, is not one itself.
PciPlace place_of(const std::filesystem::path& sysfs, const std::filesystem::path& interface) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::canonical(interface / "device", error);
  while (!error && folder.has_relative_path()) {
    if (std::filesystem::exists(sysfs / "bus/pci/devices" / folder.filename(), error)) {
      return pci_place(sysfs, folder.filename().string());
    }
    folder = folder.parent_path();
  }
  return {};
}

}  // namespace

double pcie_bandwidth(double gigatransfers, int lanes) {
  // 8b/10b encoding up to generation 2, 128b/130b from generation 3 on.
  const double payload = gigatransfers < 8 ? 0.8 : 128.0 / 130.0;
  return gigatransfers * payload / 8 * lanes;
}

PciPlace pci_place(const std::filesystem::path& sysfs, const std::string& address) {
  PciPlace place;
  place.address = address;
  std::error_code error;
  const std::filesystem::path device = std::filesystem::canonical(sysfs / "bus/pci/devices" / address, error);
  if (error) return place;

  // .../pci0000:00/0000:00:01.0/0000:01:00.0: the PCI folders above a device's are its bridges.
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

std::vector<int> own_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

std::vector<NicDescription> nics_in_sysfs(const std::filesystem::path& sysfs) {
  std::vector<NicDescription> nics;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(sysfs / "class/net", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::filesystem::path interface = entry->path();
    const long type = read_integer(interface / "type").value_or(-1);
    if (type != ethernet && type != infiniband) continue;  // the loopback interface, tunnels
    NicDescription nic;
    nic.name = interface.filename().string();
    nic.is_infiniband = type == infiniband;
    std::error_code unreadable;
    nic.is_virtual = !std::filesystem::exists(interface / "device", unreadable);
    if (!nic.is_virtual) nic.pci = place_of(sysfs, interface);
    const std::string state = read_line(interface / "operstate").value_or("");
    nic.is_up = state == "up" || (nic.is_virtual && state == "unknown");
    // -1, possibly as an unsigned number, if the driver does not know.
    const long speed = read_integer(interface / "speed").value_or(-1);
    if (speed > 0 && speed < 0xffffffffL) nic.speed = static_cast<double>(speed) / 1000;
    nics.push_back(std::move(nic));
  }
  std::ranges::sort(nics, {}, &NicDescription::name);
  return nics;
}

}  // namespace ddl::topology
