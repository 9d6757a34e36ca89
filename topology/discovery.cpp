#include "ddl/topology/discovery.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "ddl/error.hpp"
#include "topology/gpus_by_nvml.hpp"
#include "topology/sysfs.hpp"
#ifdef DDL_HAVE_HWLOC
#include "topology/packages_by_hwloc.hpp"
#endif

namespace ddl::topology {
namespace {

std::string own_hostname() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

/// "model name : AMD EPYC ..." on x86, "cpu : POWER9 ..." on POWER; ARM tells none.
std::string cpu_model_in(const std::filesystem::path& cpuinfo) {
  std::ifstream stream(cpuinfo);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    if ((key == "model name" || key == "cpu") && value != std::string::npos) return line.substr(value);
  }
  return "";
}

std::vector<PackageDescription> discover_packages(const DiscoveryOptions& options,
                                                  [[maybe_unused]] std::vector<std::string>& notes) {
#ifdef DDL_HAVE_HWLOC
  // hwloc describes this machine, whatever sysfs is asked for.
  if (!options.hwloc_synthetic.empty()) return packages_by_hwloc(options.hwloc_synthetic);
  if (options.sysfs == "/sys") {
    try {
      std::vector<PackageDescription> packages = packages_by_hwloc({});
      if (!packages.empty()) return packages;
      notes.emplace_back("packages read from sysfs: hwloc finds no NUMA domain with CPUs");
    } catch (const Error& error) {
      notes.push_back(fmt::format("packages read from sysfs: {}", error.what()));
    }
  }
#endif
  return packages_in_sysfs(options.sysfs);
}

}  // namespace

HostDescription discover_host(const DiscoveryOptions& options) {
  HostDescription host;
  host.hostname = own_hostname();
  host.cpu_model = cpu_model_in(options.cpuinfo);
  host.packages = discover_packages(options, host.notes);
  host.nics = nics_in_sysfs(options.sysfs);
  host.gpus = gpus_by_nvml(options.nvml, options.sysfs, host.notes);
  return host;
}

}  // namespace ddl::topology
