#include "ddl/topology/discovery.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

#include "ddl/error.hpp"
#include "topology/discovery/sources.hpp"
#include "topology/discovery/sysfs.hpp"

namespace ddl::topology {
namespace {

std::string own_hostname() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

CpuDescription describe_cpu(const std::filesystem::path& cpuinfo) {
  CpuDescription cpu;
  utsname system = {};
  if (uname(&system) == 0) cpu.architecture = system.machine;
  const auto number = [](const std::string& text) {
    int value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return std::max(0, value);
  };
  // Lines "key : value" of the first CPU; its name is "model name" on x86 and "cpu" on POWER.
  std::ifstream stream(cpuinfo);
  for (std::string line; std::getline(stream, line) && !line.empty();) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const std::string value = line.substr(std::min(line.size(), line.find_first_not_of(" \t", colon + 1)));
    if (key == "model name" || key == "cpu") cpu.name = value;
    if (key == "vendor_id") cpu.vendor = value;
    if (key == "cpu family") cpu.family = number(value);
    if (key == "model") cpu.model = number(value);
  }
  return cpu;
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

/// CUDA is not asked where NVML answers: cuInit is slow, and driver state does not survive a fork.
std::vector<GpuDescription> discover_gpus(const DiscoveryOptions& options, std::vector<std::string>& notes) {
  std::string nvml_problem;
  try {
    return gpus_by_nvml(options.nvml, options.sysfs, notes);
  } catch (const Error& error) {
    nvml_problem = error.what();
  }
  if (options.cuda_driver.empty()) {
    notes.push_back(fmt::format("no GPUs: {}; CUDA is not to be asked", nvml_problem));
    return {};
  }
  try {
    std::vector<std::string> cuda_notes;
    std::vector<GpuDescription> gpus = gpus_by_cuda(options.cuda_driver, options.sysfs, cuda_notes);
    notes.push_back(fmt::format("GPUs found by CUDA, since NVML cannot be used: {}", nvml_problem));
    notes.insert(notes.end(), cuda_notes.begin(), cuda_notes.end());
    return gpus;
  } catch (const Error& error) {
    notes.push_back(fmt::format("no GPUs: {}; {}", nvml_problem, error.what()));
    return {};
  }
}

}  // namespace

HostDescription discover_host(const DiscoveryOptions& options) {
  HostDescription host;
  host.hostname = own_hostname();
  host.cpu = describe_cpu(options.cpuinfo);
  host.packages = discover_packages(options, host.notes);
  host.nics = nics_in_sysfs(options.sysfs);
  host.gpus = discover_gpus(options, host.notes);
  return host;
}

}  // namespace ddl::topology
