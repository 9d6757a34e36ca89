#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// As hwloc tells it; empty or 0: it does not say.
struct CpuDescription {
  std::string architecture;  ///< "x86_64", "ppc64le", "aarch64".
  std::string vendor;        ///< "GenuineIntel", "AuthenticAMD".
  std::string name;          ///< "AMD EPYC 9654 96-Core Processor", "POWER9 ...".
  int family = 0;
  int model = 0;

  friend bool operator==(const CpuDescription&, const CpuDescription&) = default;
};

/// A NUMA domain that has cores; all of them where the machine tells of no NUMA domains.
struct PackageDescription {
  int socket = 0;            ///< The system's number of the socket; several domains may share one.
  int numa_node = -1;        ///< The system's number; -1: unknown.
  std::vector<int> cpus;     ///< Logical CPUs that processes may use, ascending.
  int cores = 0;             ///< Physical cores; at least 1.
  std::uint64_t memory = 0;  ///< Bytes; 0: unknown.

  friend bool operator==(const PackageDescription&, const PackageDescription&) = default;
};

/// Where a device sits in the PCI tree.
struct PciPlace {
  std::string address;  ///< "0000:03:00.0"; empty: not on PCI, or unknown.
  /// Addresses of the bridges above it, the root port first. Each second one is the upper end of a switch.
  std::vector<std::string> bridges;
  int numa_node = -1;    ///< -1: unknown.
  double bandwidth = 0;  ///< GB/s in one direction before protocol: the least on the way up; 0: unknown.

  friend bool operator==(const PciPlace&, const PciPlace&) = default;
};

/// A network interface; the loopback interface is left out.
struct NicDescription {
  std::string name;            ///< "eth0".
  PciPlace pci;                ///< Without an address where is_virtual.
  double speed = 0;            ///< Gb/s; 0: the driver does not say.
  bool is_infiniband = false;  ///< IP over InfiniBand; else Ethernet.
  bool is_up = false;          ///< Has a link.
  bool is_virtual = false;     ///< A bridge, veth, bond, tunnel: not hardware.

  friend bool operator==(const NicDescription&, const NicDescription&) = default;
};

/// What is at the far end of an NVLink.
enum class NvlinkPeer : std::uint8_t { gpu, nvswitch, cpu, unknown };

/// The NVLinks of a GPU to one peer. All NVSwitches of a host count as one peer.
struct NvlinkDescription {
  NvlinkPeer peer = NvlinkPeer::unknown;
  std::string address;  ///< The peer's PCI address if it is a GPU, else empty.
  int count = 0;        ///< Links that are up; at least 1. 1 where only CUDA told of them.

  friend bool operator==(const NvlinkDescription&, const NvlinkDescription&) = default;
};

struct GpuDescription {
  PciPlace pci;
  std::string model;           ///< "Tesla V100-SXM2-16GB"
  int compute_capability = 0;  ///< 10 * major + minor, e.g. 70; 0: unknown.
  std::uint64_t memory = 0;    ///< Bytes; 0: unknown.
  std::vector<NvlinkDescription> nvlinks;

  friend bool operator==(const GpuDescription&, const GpuDescription&) = default;
};

/// What a rank finds on its host. A value that can be sent: see `to_json`.
struct HostDescription {
  std::string hostname;
  CpuDescription cpu;
  std::vector<PackageDescription> packages;  ///< At least one.
  std::vector<NicDescription> nics;          ///< By name.
  std::vector<GpuDescription> gpus;          ///< In the order of the PCI addresses, as NVML numbers them.
  std::vector<std::string> notes;            ///< What could not be found out, and why; for people.

  friend bool operator==(const HostDescription&, const HostDescription&) = default;
};

/// Where discovery looks; the defaults are what everybody but tests wants.
struct DiscoveryOptions {
  std::filesystem::path sysfs = "/sys";
  /// NVIDIA's management library, for dlopen.
  std::string nvml = "libnvidia-ml.so.1";
  /// CUDA's driver, for dlopen; loaded only where `nvml` is missing or fails. A machine that has neither
  /// has no GPUs, and a note that says so.
  std::string cuda_driver = "libcuda.so.1";
  /// hwloc's synthetic description of the CPUs, in place of the machine's: "package:2 numa:2 core:4 pu:2".
  std::string hwloc_synthetic = {};
};

/// Describes the machine that it runs on: the CPU and its packages by hwloc, NICs and the PCI tree from
/// sysfs, GPUs and NVLinks by NVML, or else by CUDA. CPUs are those that the process's cpuset allows,
/// whatever core it is bound to, so that all ranks of a host find the same. What is missing leaves a note,
/// not an error; throws `io` where hwloc cannot read the machine. A few milliseconds; some tens with GPUs.
/// Any thread.
///
/// NVML sees all GPUs of the host. CUDA, asked only where NVML is missing or fails, sees those that
/// CUDA_VISIBLE_DEVICES leaves, so ranks with different values find different hosts. It does not count
/// NVLinks either: GPUs with native atomics over peer access are taken as joined by one, others by PCIe.
/// Notes say both. Only then is cuInit called: it takes up to seconds, after it CUDA cannot be used in a
/// child that the process forks, a later change of CUDA_VISIBLE_DEVICES has no effect, and the driver stays
/// loaded. A process that cannot have that passes an empty `cuda_driver`.
HostDescription discover_host(const DiscoveryOptions& options = {});

/// As text that `host_description_from_json` reads back to an equal value.
std::string to_json(const HostDescription& host);
/// Throws `corrupt_data` naming `source`, the path inside it ("nics[1].speed"), what was found and what
/// was expected; unknown and missing keys are errors.
HostDescription host_description_from_json(std::string_view text, std::string_view source);

/// One topology for a job: rank r is on hosts[host_of_rank[r]] and is device r of the result. A pure
/// function: equal arguments give equal topologies on every rank.
///
/// `device` is `cpu` or `gpu`. The ranks of a host, in order, take its GPUs in order, or its cores in
/// equal shares, package after package; no binding is assumed beyond that. Node names are "h0/package0",
/// "h0/pcie0", "h0/nvswitch", "h0/eth0", "h0/cpu0" or "h0/gpu0", and "network". A hostname that repeats
/// gets "-2" and so on.
///
/// NICs: of a host's hardware interfaces that are up (virtual ones if there is no other), those with at
/// least a quarter of the fastest one's speed; slower ones are for management. One that does not tell its
/// speed is taken to have the slowest speed that another one tells, else 10 Gb/s. A
/// host without any gets one named "nic0" when there are several hosts. All join one switch.
///
/// Bandwidths and latencies are what topology/graph/link_figures.hpp has for their kind, or what the machine
/// tells: PCIe lanes and their speed, a NIC's rate, a number of NVLinks; nothing is measured. See
/// topology/README.md.
///
/// `gpu_of_rank`: the GPU of each rank, found in its host's description by its PCI address; one that is not
/// there counts as described here. Ranks that name the same one are devices "h0/gpu0.0", "h0/gpu0.1" on it,
/// which share its memory's bandwidth. Empty: the i-th rank of a host is on its i-th GPU.
///
/// Hosts without ranks are left out.
/// Throws `invalid_argument` with what was found and expected: no ranks, a host index out of range, more
/// ranks on a host than GPUs, a `device` that is none, a host without packages.
Topology merge(std::span<const HostDescription> hosts, std::span<const int> host_of_rank, NodeKind device,
               std::span<const GpuDescription> gpu_of_rank = {});

}  // namespace ddl::topology
