#include "ddl/device/runtime/device_table.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "collectives/communicator/job_topology.hpp"
#include "collectives/device/cuda_check.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
#include "ddl/error.hpp"
#include "ddl/log.hpp"
#include "ddl/topology/discovery.hpp"
#include "topology/discovery/sysfs.hpp"
#include "topology/text.hpp"

namespace ddl::device {
namespace {

/// LOCAL_RANK, if ranks are processes and a launcher has set it; else the rank's index on its host.
int local_rank_of(const Context& context, bool is_process) {
  const char* const text = is_process ? std::getenv("LOCAL_RANK") : nullptr;
  if (text == nullptr) return context.local_rank();
  if (const auto number = parse_whole<int>(text); number && *number >= 0) return *number;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("LOCAL_RANK: found '{}', expected the process's index on its host, 0 or more", text));
}

DeviceEntry select(const Context& context, int wanted, bool is_process) {
  const int devices = cuda_devices();
  if (wanted >= devices || wanted < -1) {
    throw Error(ErrorCode::unsupported,
                fmt::format("DeviceOptions::device: CUDA device {} does not exist: {} found, numbered from 0 "
                            "(CUDA_VISIBLE_DEVICES says which a process sees)",
                            wanted, devices));
  }
  DeviceEntry entry;
  entry.number = wanted >= 0 ? wanted : local_rank_of(context, is_process) % devices;
  check_cuda(cudaSetDevice(entry.number), "cudaSetDevice");
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, entry.number), "cudaGetDeviceProperties");
  std::memcpy(entry.uuid.data(), properties.uuid.bytes, entry.uuid.size());
  std::memcpy(entry.name.data(), properties.name,
              std::min(std::strlen(properties.name), entry.name.size() - 1));
  check_cuda(cudaDeviceGetPCIBusId(entry.pci_address.data(), static_cast<int>(entry.pci_address.size()),
                                   entry.number),
             "cudaDeviceGetPCIBusId");
  std::ranges::transform(entry.pci_address, entry.pci_address.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  entry.major = properties.major;
  entry.minor = properties.minor;
  entry.memory = properties.totalGlobalMem;
  return entry;
}

/// The processors that a file of sysfs lists.
std::optional<std::vector<int>> cpus_of(const std::string& file) {
  const auto line = topology::read_line("/sys/" + file);
  return line ? topology::parse_cpu_list(*line) : std::nullopt;
}

std::string kind_of(const DeviceEntry& entry) {
  constexpr double gib = 1 << 30;
  return fmt::format("{} ({}.{}, {:.0f} GiB)", entry.name.data(), entry.major, entry.minor,
                     static_cast<double>(entry.memory) / gib);
}

}  // namespace

DeviceTable::DeviceTable(const Context& context, int wanted)
    : entries_(static_cast<std::size_t>(context.size())) {
  DeviceEntry own;
  own.process = PeerMemory::own_process();
  context.communicator().all_gather(&own, entries_.data(), sizeof own, DataType::u8);
  const bool is_process = is_one_process_each();
  context.on_all_ranks("devices", [&] { own = select(context, wanted, is_process); });
  own.process = PeerMemory::own_process();
  context.communicator().all_gather(&own, entries_.data(), sizeof own, DataType::u8);
}

std::vector<int> DeviceTable::ranks_on_device_of(int rank) const {
  std::vector<int> ranks;
  for (int other = 0; other < size(); ++other) {
    if (of(other).uuid == of(rank).uuid) ranks.push_back(other);
  }
  return ranks;
}

std::vector<int> DeviceTable::threads_on_device_of(int rank) const {
  std::vector<int> ranks = ranks_on_device_of(rank);
  std::erase_if(ranks, [&](int other) { return of(other).process != of(rank).process; });
  return ranks;
}

bool DeviceTable::is_one_process_each() const {
  return std::ranges::all_of(entries_, [&](const DeviceEntry& entry) {
    return std::ranges::count(entries_, entry.process, &DeviceEntry::process) == 1;
  });
}

std::vector<std::string> DeviceTable::shortcomings() const {
  std::vector<std::string> found;
  std::map<std::string, std::vector<int>> alike;
  for (int rank = 0; rank < size(); ++rank) {
    alike[kind_of(of(rank))].push_back(rank);
    const std::vector<int> sharers = ranks_on_device_of(rank);
    if (sharers.size() == 1 || sharers.front() != rank) continue;
    found.push_back(
        fmt::format("ranks {} share CUDA device {} ({}), and so its speed and memory: start as "
                    "many ranks on each host as it has devices",
                    fmt::join(sharers, ", "), of(rank).number, of(rank).name.data()));
  }
  if (alike.size() == 1) return found;
  std::vector<std::string> kinds;
  for (const auto& [kind, ranks] : alike) {
    kinds.push_back(fmt::format("rank{} {}: {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), kind));
  }
  found.push_back(fmt::format("the ranks' devices differ, and all wait for the slowest one in each step ({})",
                              fmt::join(kinds, "; ")));
  return found;
}

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

namespace {

topology::GpuDescription described(const DeviceEntry& entry) {
  topology::GpuDescription gpu;
  gpu.pci.address = entry.pci_address.data();
  gpu.model = entry.name.data();
  gpu.compute_capability = 10 * entry.major + entry.minor;
  gpu.memory = entry.memory;
  return gpu;
}

}  // namespace

std::shared_ptr<const topology::Topology> device_topology(const Context& context,
                                                          const DeviceTable& devices) {
  // A group's rank r is not device r of the topology.
  const bool is_whole_job = context.state().impl == membership_of(context).all;
  if (is_whole_job && !context.options().topology.empty()) {
    const std::shared_ptr<const topology::Topology> named = context.topology();
    const auto is_gpu = [&](int device) {
      return named->nodes()[static_cast<std::size_t>(device)].kind == topology::NodeKind::gpu;
    };
    const auto own = std::span(named->devices()).first(static_cast<std::size_t>(context.size()));
    if (std::ranges::all_of(own, is_gpu) &&
        collectives::has_same_hosts(*named, context.communicator().rank_map())) {
      return named;
    }
    context.log().info(
        fmt::format("plans on devices are chosen for what is discovered: DDL_TOPOLOGY, {}, groups the ranks "
                    "into other hosts than they are on, or has no GPUs",
                    context.options().topology));
  }
  ContextBootstrap ranks(context);
  const collectives::JobTopology found = collectives::discover_devices(
      ranks, context.communicator().rank_map(), described(devices.of(context.rank())),
      [] { return topology::discover_host(); });
  if (context.is_root()) {
    for (const std::string& warning : found.warnings) context.log().warning(warning);
    for (const std::string& note : found.notes) context.log().debug(note);
  }
  return found.topology;
}

}  // namespace ddl::device
