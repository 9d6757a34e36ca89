#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temporary_directory.hpp"

namespace ddl::test {

/// A directory that stands in for /sys.
class FakeSysfs {
 public:
  [[nodiscard]] const std::filesystem::path& root() const noexcept { return directory_.path(); }

  void write(const std::filesystem::path& file, const std::string& text) const {
    std::filesystem::create_directories((root() / file).parent_path());
    std::ofstream(root() / file) << text << '\n';
  }

  /// `folders`: from the root complex down, "pci0000:00/0000:00:01.0/0000:01:00.0"; the last is the device.
  void add_pci_device(const std::filesystem::path& folders, int numa_node, const std::string& speed,
                      const std::string& width, const std::string& class_code = "0x030200") const {
    const std::filesystem::path device = "devices" / folders;
    write(device / "numa_node", std::to_string(numa_node));
    write(device / "max_link_speed", speed);
    write(device / "max_link_width", width);
    write(device / "class", class_code);
    const std::filesystem::path entry = root() / "bus/pci/devices" / device.filename();
    std::filesystem::create_directories(entry.parent_path());
    std::filesystem::create_directory_symlink(root() / device, entry);
  }

  /// `device`: as in add_pci_device, possibly with more folders; empty: a virtual interface.
  void add_interface(const std::string& name, const std::filesystem::path& device, const std::string& state,
                     const std::string& speed, const std::string& type = "1") const {
    const std::filesystem::path folder =
        (device.empty() ? std::filesystem::path("devices/virtual") : "devices" / device) / "net" / name;
    write(folder / "operstate", state);
    write(folder / "type", type);
    write(folder / "speed", speed);
    if (!device.empty())
      std::filesystem::create_directory_symlink(root() / "devices" / device, root() / folder / "device");
    std::filesystem::create_directories(root() / "class/net");
    std::filesystem::create_directory_symlink(root() / folder, root() / "class/net" / name);
  }

 private:
  TemporaryDirectory directory_;
};

}  // namespace ddl::test
