#include "ddl/device/runtime/process_settings.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/device.hpp"
#include "topology/discovery/sysfs.hpp"

namespace ddl {
namespace {

constexpr const char* connections = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr const char* loading = "CUDA_MODULE_LOADING";

std::string_view variable(const char* name) noexcept {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

void set_cuda_environment() {
  constexpr int unless_it_is_set = 0;
  setenv(connections, std::to_string(device::most_connections).c_str(), unless_it_is_set);
  setenv(loading, device::eager, unless_it_is_set);
}

namespace device {

bool has_cuda_environment() noexcept {
  return std::atoi(variable(connections).data()) >= most_connections && variable(loading) == eager;
}

}  // namespace device
}  // namespace ddl

namespace ddl::device {
namespace {

std::optional<std::vector<int>> cpus_of(const std::string& file) {
  const auto line = topology::read_line("/sys/" + file);
  return line ? topology::parse_cpu_list(*line) : std::nullopt;
}

}  // namespace

std::string bind_near(const std::string& pci_address) {
  const auto near = cpus_of("bus/pci/devices/" + pci_address + "/local_cpulist");
  const auto online = cpus_of("devices/system/cpu/online");
  if (!near || near->empty() || !online) return "the processors near it are not known";
  const std::vector<int> allowed = topology::own_cpus();
  if (allowed != *online) {
    const bool is_near =
        std::ranges::any_of(allowed, [&](int cpu) { return std::ranges::count(*near, cpu) != 0; });
    return fmt::format(
        "bound before to processors {}{}", topology::format_cpu_list(allowed),
        is_near ? ""
                : fmt::format(", none of which is near it: those are {}", topology::format_cpu_list(*near)));
  }
  if (*near == *online) return "all processors are near it";
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : *near) {
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  if (sched_setaffinity(0, sizeof set, &set) != 0) return "the processors near it cannot be chosen";
  return fmt::format("bound to the processors near it, {}", topology::format_cpu_list(*near));
}

}  // namespace ddl::device
