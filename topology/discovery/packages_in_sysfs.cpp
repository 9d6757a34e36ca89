#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>

#include "topology/discovery/cpu_list.hpp"
#include "topology/discovery/sysfs.hpp"

namespace ddl::topology {
namespace {

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

/// Of a line "Node 0 MemTotal:       16389520 kB".
std::uint64_t memory_in(const std::filesystem::path& meminfo) {
  std::ifstream stream(meminfo);
  std::string node, number, key;
  std::uint64_t kibibytes = 0;
  for (std::string line; stream >> node >> number >> key; std::getline(stream, line)) {
    if (key == "MemTotal:" && stream >> kibibytes && kibibytes < (std::uint64_t{1} << 50)) {
      return kibibytes * 1024;
    }
  }
  return 0;
}

std::filesystem::path topology_of(const std::filesystem::path& sysfs, int cpu) {
  return sysfs / fmt::format("devices/system/cpu/cpu{}/topology", cpu);
}

void add_cores(const std::filesystem::path& sysfs, PackageDescription& package) {
  std::set<std::pair<long, long>> cores;
  for (const int cpu : package.cpus) {
    const std::filesystem::path topology = topology_of(sysfs, cpu);
    const std::optional<long> core = read_integer(topology / "core_id");
    cores.emplace(read_integer(topology / "physical_package_id").value_or(0), core.value_or(-1 - cpu));
  }
  package.cores = static_cast<int>(cores.size());
  const std::optional<long> socket =
      read_integer(topology_of(sysfs, package.cpus.front()) / "physical_package_id");
  package.socket = static_cast<int>(std::clamp(socket.value_or(0), 0L, 65'535L));
}

}  // namespace

std::vector<PackageDescription> packages_in_sysfs(const std::filesystem::path& sysfs) {
  const std::filesystem::path nodes = sysfs / "devices/system/node";
  std::vector<PackageDescription> packages;
  // "online" lists nodes as it lists CPUs.
  for (const int node :
       parse_cpu_list(read_line(nodes / "online").value_or("")).value_or(std::vector<int>())) {
    const std::filesystem::path folder = nodes / fmt::format("node{}", node);
    PackageDescription package;
    package.numa_node = node;
    package.cpus = parse_cpu_list(read_line(folder / "cpulist").value_or("")).value_or(std::vector<int>());
    if (package.cpus.empty()) continue;  // memory alone, of a GPU for instance
    package.memory = memory_in(folder / "meminfo");
    packages.push_back(std::move(package));
  }
  if (packages.empty()) {
    packages.emplace_back();
    packages.back().cpus = own_cpus();
  }
  for (PackageDescription& package : packages) add_cores(sysfs, package);
  return packages;
}

}  // namespace ddl::topology
