#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddl::topology {

/// What carries collectives between ranks on GPUs. A topology that knows it gets only plans that a job's
/// DeviceCommunicator executes; see `Planner`.
struct DeviceCarriers {
  bool exchange = false;  ///< cuda_ipc: kernels of the ranks of a host, on each host.
  /// Up to so many bytes the exchange does an all-reduce by one_shot too.
  std::uint64_t one_shot_bytes = 0;
  bool nccl = false;         ///< Among all ranks, and in each dimension along the hosts.
  bool network = false;      ///< Devices' memory, among all ranks; with the exchange also between hosts.
  bool host_memory = false;  ///< The same through page-locked memory.

  [[nodiscard]] bool any() const noexcept { return exchange || nccl || network || host_memory; }
  friend bool operator==(const DeviceCarriers&, const DeviceCarriers&) = default;
};

/// "cuda_ipc:393216,nccl": the carriers' names, after cuda_ipc the bytes of one_shot if there are any.
std::string to_string(const DeviceCarriers& carriers);
/// Reads that back. Throws `invalid_argument`: what was found, and which names there are.
DeviceCarriers device_carriers_from(std::string_view text);

}  // namespace ddl::topology
