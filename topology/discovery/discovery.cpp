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

}  // namespace

HostDescription discover_host(const DiscoveryOptions& options) {
  HostDescription host;
  host.hostname = own_hostname();
  describe_processors(options.hwloc_synthetic, host);
  host.nics = nics_in_sysfs(options.sysfs);
  try {
    host.gpus = gpus_by_nvml(options.nvml, options.sysfs, host.notes);
  } catch (const Error& error) {
    host.notes.push_back(fmt::format("no GPUs: {}", error.what()));
  }
  return host;
}

}  // namespace ddl::topology
