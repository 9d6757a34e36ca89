// Host descriptions as JSON.
#include <fmt/format.h>

#include <array>
#include <set>
#include <string>

#include "ddl/topology/discovery.hpp"
#include "topology/discovery/sysfs.hpp"
#include "topology/json_fields.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {

constexpr std::size_t most_of_a_kind = 65'536;  // packages, NICs, GPUs, bridges, notes
constexpr int largest_number = 65'535;          // of a package, a NUMA domain, a CPU model
constexpr double highest_rate = 1e6;

static std::string_view to_string(NvlinkPeer peer) {
  constexpr std::array<std::string_view, 4> names = {"gpu", "nvswitch", "cpu", "unknown"};
  return name_in(names, peer);
}

template <typename Fields, MaybeConst<PciPlace> Place>
static void describe(Fields& fields, Place& pci) {
  fields("address", pci.address);
  fields("bridges", pci.bridges, most_of_a_kind, NotEmpty{});
  fields("numa_node", pci.numa_node, -1, largest_number);
  fields("bandwidth", pci.bandwidth, highest_rate);
}

template <typename Fields, MaybeConst<CpuDescription> Cpu>
static void describe(Fields& fields, Cpu& cpu) {
  fields("architecture", cpu.architecture);
  fields("vendor", cpu.vendor);
  fields("name", cpu.name);
  fields("family", cpu.family, 0, largest_number);
  fields("model", cpu.model, 0, largest_number);
}

template <typename Fields, MaybeConst<PackageDescription> Package>
static void describe(Fields& fields, Package& package) {
  const auto some_cpus = [](std::string_view text) {
    auto cpus = parse_cpu_list(text);
    return cpus && cpus->empty() ? std::nullopt : cpus;
  };
  fields("socket", package.socket, 0, largest_number);
  fields("numa_node", package.numa_node, -1, largest_number);
  fields.text("cpus", package.cpus, format_cpu_list, some_cpus,
              "an ascending list of CPUs, such as \"0-3,8\"");
  fields("cores", package.cores, 1, largest_number + 1);
  fields("memory", package.memory);
}

template <typename Fields, MaybeConst<NicDescription> Nic>
static void describe(Fields& fields, Nic& nic) {
  fields("name", nic.name, NotEmpty{});
  fields("pci", nic.pci);
  fields("speed", nic.speed, highest_rate);
  fields("is_infiniband", nic.is_infiniband);
  fields("is_up", nic.is_up);
  fields("is_virtual", nic.is_virtual);
}

template <typename Fields, MaybeConst<NvlinkDescription> Nvlink>
static void describe(Fields& fields, Nvlink& link) {
  constexpr int most_links = 1'024;
  fields("peer", link.peer, all_to<NvlinkPeer::unknown>);
  fields("address", link.address);
  fields("count", link.count, 1, most_links);
}

template <typename Fields, MaybeConst<GpuDescription> Gpu>
static void describe(Fields& fields, Gpu& gpu) {
  fields("pci", gpu.pci);
  fields("model", gpu.model);
  fields("compute_capability", gpu.compute_capability, 0, 999);
  fields("memory", gpu.memory);
  fields("nvlinks", gpu.nvlinks, most_of_a_kind);
}

template <typename Fields, MaybeConst<HostDescription> Host>
static void describe(Fields& fields, Host& host) {
  fields.version("host_description", 1);
  fields("hostname", host.hostname, NotEmpty{});
  fields("cpu", host.cpu);
  fields("packages", host.packages, most_of_a_kind);
  fields("nics", host.nics, most_of_a_kind);
  fields("gpus", host.gpus, most_of_a_kind);
  fields("notes", host.notes, most_of_a_kind);
}

/// Checks what spans several fields. Throws `invalid_argument`.
static void check(const HostDescription& host) {
  const auto fail = [](const std::string& path, std::string_view found, std::string_view expected) {
    refuse("{}: found {}, expected {}", path, found, expected);
  };
  if (host.packages.empty()) fail("packages", "none", "at least one package");
  std::set<std::string> seen;
  for (std::size_t i = 0; i < host.nics.size(); ++i) {
    const std::string& name = host.nics[i].name;
    if (!seen.insert(name).second) {
      fail(fmt::format("nics[{}].name", i), in_quotes(name) + " a second time", "each once");
    }
  }
  seen.clear();
  for (std::size_t i = 0; i < host.gpus.size(); ++i) {
    const std::string& address = host.gpus[i].pci.address;
    const std::string path = fmt::format("gpus[{}].pci.address", i);
    if (address.empty()) fail(path, "''", "a PCI address");
    if (!seen.insert(address).second) fail(path, in_quotes(address) + " a second time", "each once");
  }
}

std::string to_json(const HostDescription& host) {
  // Names come from the system and may not be UTF-8.
  return JsonFieldWriter::json(host).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

HostDescription host_description_from_json(std::string_view text, std::string_view source) {
  HostDescription host;
  read_json(text, source, JsonFieldReader::slot(host));
  check_source(source, [&] { check(host); });
  return host;
}

}  // namespace ddl::topology
