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

/// A rank's device, as exchanged between all ranks.
struct DeviceEntry {
  std::array<char, 16> uuid{};  ///< A MIG instance has a UUID of its own.
  std::array<char, 128> name{};
  std::array<char, 16> pci_address{};  ///< Spelled as in sysfs and discovery.
  int number = -1;                     ///< CUDA's device number in the rank's process.
  int major = 0, minor = 0;
  std::size_t memory = 0;  ///< Bytes.
  PeerMemory::ProcessToken process{};
};

/// The devices of all ranks.
class DeviceTable {
 public:
  /// Selects device `wanted` in the calling thread. If it is -1, selects the device with the number
  /// LOCAL_RANK, or else the rank's index on its host, modulo the number of devices. Collective. Throws
  /// agreed errors: `unsupported`, and `invalid_argument` for a malformed LOCAL_RANK.
  DeviceTable(const Context& context, int wanted);

  [[nodiscard]] const DeviceEntry& of(int rank) const { return entries_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(entries_.size()); }
  /// The ranks on the device of `rank`, itself included, in order.
  [[nodiscard]] std::vector<int> ranks_on_device_of(int rank) const;
  /// As `ranks_on_device_of`, but only ranks that are threads of the same process.
  [[nodiscard]] std::vector<int> threads_on_device_of(int rank) const;
  /// Whether every rank is a separate process.
  [[nodiscard]] bool is_one_process_each() const;

  /// Warnings for the user: devices that several ranks share, and devices that differ. The same on all ranks.
  [[nodiscard]] std::vector<std::string> shortcomings() const;

 private:
  std::vector<DeviceEntry> entries_;
};

/// Binds the calling thread, and threads that it starts later, to the processors that sysfs calls local to a
/// PCI device ("0000:19:00.0", spelled as in sysfs). Does nothing if the thread is already bound to a part of
/// the machine's processors. Returns a short description of what it did, or why it did nothing.
std::string bind_near(const std::string& pci_address);

/// The topology for plans on the ranks' devices: the discovered graph of their GPUs, NVLinks, PCIe, NICs and
/// hosts, or the one that DDL_TOPOLOGY names if that has GPUs on the same hosts. The same on all ranks.
/// Collective; throws an agreed `mismatch`.
std::shared_ptr<const topology::Topology> device_topology(const Context& context, const DeviceTable& devices);

}  // namespace ddl::device
