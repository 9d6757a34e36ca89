#include <algorithm>

#include "topology/discovery/sysfs.hpp"

namespace ddl::topology {
namespace {

// Values of <linux/if_arp.h>.
constexpr long ethernet = 1;
constexpr long infiniband = 32;

/// The PCI device that an interface belongs to: the lowest folder with a PCI address on its way up. A
/// virtio interface, for instance, is below a folder that has none.
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
    // -1, or the same as an unsigned number, where the driver does not know.
    const long speed = read_integer(interface / "speed").value_or(-1);
    if (speed > 0 && speed < 0xffffffffL) nic.speed = static_cast<double>(speed) / 1000;
    nics.push_back(std::move(nic));
  }
  std::ranges::sort(nics, {}, &NicDescription::name);
  return nics;
}

}  // namespace ddl::topology
