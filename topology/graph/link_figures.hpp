#pragma once

#include <string_view>

namespace ddl::topology::figures {

// Latencies in us of one link, used where nothing was measured. From NCCL's model (src/graph/tuning.cc), in
// which a ring step of the lowest-latency protocol (LL) takes 0.6 over NVLink, 1.0 over PCIe and 2.7 over the
// network. A step between devices behind a switch crosses two links, so each link has half of that.
constexpr double nvlink_latency = 0.6;  // GPU to GPU
constexpr double nvlink_to_switch_latency = 0.3;
constexpr double pcie_latency = 0.5;
constexpr double network_latency = 1.35;  // NIC to switch
// Estimates. POWER9 has NVLink ports of its own, so its links are faster than PCIe. The others stand for an
// access to the other socket's memory, a cache line between cores, and half of a message by kernel TCP.
constexpr double nvlink_to_package_latency = 0.4;
constexpr double socket_latency = 0.3;
constexpr double memory_latency = 0.1;
// The wait for another rank on the same CPU: half of a change of processes, because a message between ranks
// crosses two links. From small collectives of 4 ranks on 2 CPUs of a Zen 4.
constexpr double turn_latency = 1;
constexpr double tcp_network_latency = 12.0;

// Bandwidths in GB/s, one direction.
constexpr double bytes_per_us = 1e3;  // at 1 GB/s
// What one core moves, in both directions together. An estimate, between the 30 GB/s measured in a core's
// cache and the 12 GB/s from memory.
constexpr double memory_bandwidth = 24;
constexpr double nvlink1_bandwidth = 20;  // one link of NVLink 1 (data sheet)
constexpr double nvlink5_bandwidth = 50;  // one link of NVLink 5 (data sheet)
constexpr double nvlink_bandwidth = 25;   // one link of NVLink 2 to 4 (data sheets)
/// Memory bandwidth of a GPU, shared by reads and writes, from the data sheets of P100, V100, A100, H100 and
/// B200. An unknown GPU (0) counts as V100.
constexpr double gpu_memory_bandwidth(int compute_capability) noexcept {
  const int sm = compute_capability;
  return sm >= 100 ? 8000 : sm >= 90 ? 3350 : sm >= 80 ? 1555 : sm >= 70 || sm == 0 ? 900 : 732;
}
constexpr double gpu_memory_latency = 0.5;      // of a kernel's memory access; an estimate
constexpr double inside_socket_bandwidth = 32;  // between NUMA domains of one socket; an estimate
constexpr double unknown_network_speed = 10;    // Gb/s, where no NIC of a host reports its speed
constexpr double pcie3_x16_bandwidth = 15.75;   // 16 lanes of 8 GT/s, 128b/130b
constexpr double pcie4_x16_bandwidth = 31.5;
constexpr double pcie5_x16_bandwidth = 63;

// Figures that NCCL uses (src/graph/topo.h).
namespace nccl {

constexpr double local_bandwidth = 5000;  // where there is no link in between

constexpr double nvlink_bandwidth(int compute_capability) noexcept {
  const int sm = compute_capability;
  return sm >= 100 ? 40.1 : sm >= 90 ? 20.6 : sm == 86 ? 12 : sm >= 70 || sm < 60 ? 20 : 18;
}

/// Bandwidth between packages. `family` and `model` are as hwloc reports them; 0 if unknown.
constexpr double socket_bandwidth(std::string_view arch, std::string_view vendor, int family,
                                  int model) noexcept {
  constexpr double intel_broadwell = 6, intel_skylake = 10, intel_sapphire_rapids = 22,
                   intel_emerald_rapids = 40;
  constexpr double amd_zen_1_2 = 16, amd_zen_3_4 = 24, amd_zen_5 = 32;
  constexpr double zhaoxin = 6, power9 = 32, arm = 6;
  if (arch == "ppc64") return power9;
  if (arch == "arm64") return arm;
  if (vendor == "AuthenticAMD") return family >= 26 ? amd_zen_5 : family >= 25 ? amd_zen_3_4 : amd_zen_1_2;
  if (vendor == "  Shanghai  ") return zhaoxin;
  if (vendor == "GenuineIntel" && family == 6) {
    if (model >= 0xcf) return intel_emerald_rapids;
    if (model >= 0x8f) return intel_sapphire_rapids;
    return model >= 0x55 ? intel_skylake : intel_broadwell;
  }
  return intel_skylake;
}

/// Bandwidth of PCIe with `lanes` lanes of `gigatransfers` GT/s; a speed that PCIe lacks counts as 8.
constexpr double pcie_bandwidth(double gigatransfers, int lanes) noexcept {
  for (const double known : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
    // Payload per lane in units of 0.1 Gb/s: 15, 30, 60, 120, 240, 480.
    if (gigatransfers == known) return lanes * (known == 2.5 ? 15 : known == 5 ? 30 : known * 7.5) / 80;
  }
  return lanes * 60 / 80.0;
}

}  // namespace nccl
}  // namespace ddl::topology::figures
