#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// The processor as hwloc reports it; empty or 0: not reported.
struct CpuDescription {
  std::string architecture;  ///< "x86_64", "ppc64le", "aarch64".
  std::string vendor;        ///< "GenuineIntel", "AuthenticAMD".
  std::string name;          ///< "AMD EPYC 9654 96-Core Processor", "POWER9 ...".
  int family = 0;            ///< CPUID family.
  int model = 0;             ///< CPUID model.

  /// Memberwise equality.
  friend bool operator==(const CpuDescription&, const CpuDescription&) = default;
};

/// A NUMA domain that has cores; the whole machine if it reports no NUMA domains.
struct PackageDescription {
  int socket = 0;            ///< The system's number of the socket; several domains may share one.
  int numa_node = -1;        ///< The system's number of the domain; -1: unknown.
  std::vector<int> cpus;     ///< Logical CPUs that this process's cpuset allows, ascending.
  int cores = 0;             ///< Number of physical cores, at least 1.
  std::uint64_t memory = 0;  ///< Bytes; 0: unknown.

  /// Memberwise equality.
  friend bool operator==(const PackageDescription&, const PackageDescription&) = default;
};

/// A device's place in the PCI tree.
struct PciPlace {
  std::string address;  ///< "0000:03:00.0"; empty: not on PCI, or unknown.
  /// Addresses of the bridges above the device, the root port first. Every second one is a switch's upstream
  /// port.
  std::vector<std::string> bridges;
  int numa_node = -1;  ///< The system's number of the NUMA domain; -1: unknown.
  /// GB/s in one direction, without protocol overhead, of the slowest link up to the root port; 0: unknown.
  double bandwidth = 0;

  /// Memberwise equality.
  friend bool operator==(const PciPlace&, const PciPlace&) = default;
};

/// A network interface other than the loopback interface.
struct NicDescription {
  std::string name;            ///< "eth0".
  PciPlace pci;                ///< Without an address if `is_virtual`.
  double speed = 0;            ///< Gb/s; 0: not reported.
  bool is_infiniband = false;  ///< IP over InfiniBand; else Ethernet.
  bool is_up = false;          ///< The link is up.
  bool is_virtual = false;     ///< Not hardware: a bridge, veth, bond or tunnel.

  /// Memberwise equality.
  friend bool operator==(const NicDescription&, const NicDescription&) = default;
};

/// The device at the far end of an NVLink.
enum class NvlinkPeer : std::uint8_t {
  gpu,       ///< Another GPU.
  nvswitch,  ///< An NVSwitch, which joins all of the host's GPUs.
  cpu,       ///< The CPU of its package (POWER9, Grace).
  unknown,   ///< The driver does not say.
};

/// The NVLinks from a GPU to one peer. All NVSwitches of a host count as one peer.
struct NvlinkDescription {
  NvlinkPeer peer = NvlinkPeer::unknown;  ///< What the links lead to.
  std::string address;                    ///< The peer's PCI address if it is a GPU, else empty.
  int count = 0;  ///< Number of links that are up, at least 1. Always 1 if CUDA reports them, not NVML.

  /// Memberwise equality.
  friend bool operator==(const NvlinkDescription&, const NvlinkDescription&) = default;
};

/// A GPU.
struct GpuDescription {
  PciPlace pci;                            ///< Its place in the PCI tree.
  std::string model;                       ///< "Tesla V100-SXM2-16GB".
  int compute_capability = 0;              ///< 10 * major + minor, e.g. 70; 0: unknown.
  std::uint64_t memory = 0;                ///< Bytes; 0: unknown.
  std::vector<NvlinkDescription> nvlinks;  ///< One entry per peer.

  /// Memberwise equality.
  friend bool operator==(const GpuDescription&, const GpuDescription&) = default;
};

/// What `discover_host` finds on a host. `to_json` makes text of it that can be sent.
struct HostDescription {
  std::string hostname;                      ///< As gethostname returns it.
  CpuDescription cpu;                        ///< The processor.
  std::vector<PackageDescription> packages;  ///< At least one.
  std::vector<NicDescription> nics;          ///< Ordered by name.
  std::vector<GpuDescription> gpus;          ///< Ordered by PCI address, as NVML numbers them.
  std::vector<std::string> notes;            ///< What could not be found, and why; for people.

  /// Memberwise equality.
  friend bool operator==(const HostDescription&, const HostDescription&) = default;
};

/// The sources of discovery. The defaults suit everything but tests.
struct DiscoveryOptions {
  std::filesystem::path sysfs = "/sys";  ///< Where sysfs is mounted.
  /// NVIDIA's management library, as dlopen takes it.
  std::string nvml = "libnvidia-ml.so.1";
  /// A synthetic description of the CPUs for hwloc, e.g. "package:2 numa:2 core:4 pu:2". Empty: the machine's
  /// CPUs.
  std::string hwloc_synthetic = {};
};

/// Describes the machine that this process runs on: the CPU and its packages from hwloc, NICs and the PCI
/// tree from sysfs, all GPUs and NVLinks from NVML. The CPUs are those that the process's cpuset allows,
/// whatever core the process is bound to, so that all ranks of a host find the same. Missing information
/// leaves a note, not an error; a machine without NVML has no GPUs, and a note. Throws `io` if hwloc cannot
/// read the machine, and `invalid_argument` for a bad `hwloc_synthetic`. Takes a few milliseconds; some tens
/// with GPUs. Any thread.
HostDescription discover_host(const DiscoveryOptions& options = {});

/// JSON text that `host_description_from_json` reads back to an equal value.
std::string to_json(const HostDescription& host);
/// Reads what `to_json` writes. `source`: what messages call the text. Throws `corrupt_data`, naming
/// `source`, the path inside it ("nics[1].speed"), what was found and what was expected; unknown and missing
/// keys are errors.
HostDescription host_description_from_json(std::string_view text, std::string_view source);

/// Makes one topology of a job's hosts: rank r runs on hosts[host_of_rank[r]] and is device r of the result.
/// Hosts without ranks are left out. A pure function: equal arguments give equal topologies on every rank.
///
/// `device` is `cpu` or `gpu`. The ranks of a host, in order, get its GPUs in order, or equal shares of its
/// cores, package after package. Node names are "h0/package0", "h0/pcie0", "h0/nvswitch", "h0/eth0",
/// "h0/cpu0" or "h0/gpu0", and "network". A repeated hostname gets "-2" and so on.
///
/// NICs: of a host's hardware interfaces that are up (virtual ones if there is no other), those with at least
/// a quarter of the fastest one's speed; slower ones are taken to be for management. An interface without a
/// reported speed gets the slowest speed that another one reports, else 10 Gb/s. If there are several hosts,
/// a host without an interface gets one named "nic0". All NICs are linked to one switch.
///
/// Bandwidths and latencies are those of topology/graph/link_figures.hpp for the kind of link, or what the
/// machine reports: PCIe lanes and their speed, a NIC's rate, a number of NVLinks. If a host has more CPU
/// ranks than logical CPUs, its ranks take turns, and have less bandwidth and more latency to memory. Nothing
/// is measured. See topology/README.md.
///
/// `gpu_of_rank`: the GPU of each rank, found in its host's description by its PCI address; a GPU that is not
/// there is added as described here. Ranks that name the same GPU become devices "h0/gpu0.0", "h0/gpu0.1" on
/// it, which share the bandwidth of its memory. Empty: the i-th rank of a host is on its i-th GPU.
///
/// Throws `invalid_argument`, with what was found and expected, for no ranks, a host index out of range, more
/// ranks on a host than GPUs (if `gpu_of_rank` is empty), a `gpu_of_rank` of another size than
/// `host_of_rank`, another kind of device, and a host without packages.
Topology merge(std::span<const HostDescription> hosts, std::span<const int> host_of_rank, NodeKind device,
               std::span<const GpuDescription> gpu_of_rank = {});

}  // namespace ddl::topology
