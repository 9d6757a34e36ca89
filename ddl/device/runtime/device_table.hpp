#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/device/runtime/peer_memory.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl::device {

/// A rank's device, as all ranks know it.
struct DeviceEntry {
  std::array<char, 16> uuid{};  ///< Of a MIG instance, its own.
  std::array<char, 128> name{};
  std::array<char, 16> pci_address{};  ///< As sysfs and discovery spell it.
  int number = -1;                     ///< CUDA's, in the rank's process.
  int major = 0, minor = 0;
  std::size_t memory = 0;  ///< Bytes.
  PeerMemory::ProcessToken process{};
};

/// The devices of all ranks.
class DeviceTable {
 public:
  /// Selects device `wanted` in the calling thread, or, if it is -1, the one of LOCAL_RANK or the rank's
  /// index on its host, modulo the number of devices. Collective. Throws, agreed, `unsupported`.
  DeviceTable(const Context& context, int wanted);

  [[nodiscard]] const DeviceEntry& of(int rank) const { return entries_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(entries_.size()); }
  /// The ranks, itself included, that are on the rank's device, in order.
  [[nodiscard]] std::vector<int> ranks_on_device_of(int rank) const;
  /// Those of them that are threads of its process.
  [[nodiscard]] std::vector<int> threads_on_device_of(int rank) const;
  /// Whether each rank is a process of its own.
  [[nodiscard]] bool is_one_process_each() const;

  /// What users should know of: devices that ranks share, though there is no need to, or that differ. The
  /// same on all ranks.
  [[nodiscard]] std::vector<std::string> shortcomings() const;

 private:
  std::vector<DeviceEntry> entries_;
};

/// What plans for the ranks' devices are made for: the graph of their GPUs, NVLinks, PCIe, NICs and hosts, or
/// what DDL_TOPOLOGY names, if that has GPUs on the same hosts. The same on all ranks. Collective; throws
/// `mismatch`, agreed.
std::shared_ptr<const topology::Topology> device_topology(const Context& context, const DeviceTable& devices);

}  // namespace ddl::device
