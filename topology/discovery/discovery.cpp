#include "ddl/topology/discovery.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "ddl/error.hpp"
#include "topology/discovery/sysfs.hpp"

namespace ddl::topology {
namespace {

std::string own_hostname() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

/// CUDA is a fallback for NVML: cuInit is slow, and the driver's state does not survive a fork.
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
  describe_processors(options.hwloc_synthetic, host);
  host.nics = nics_in_sysfs(options.sysfs);
  host.gpus = discover_gpus(options, host.notes);
  return host;
}

}  // namespace ddl::topology
