#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddl::topology {

/// What is available to carry collectives between ranks on GPUs. For a topology with carriers, `Planner`
/// chooses only plans that a `DeviceCommunicator` with these carriers executes.
struct DeviceCarriers {
  bool exchange = false;  ///< cuda_ipc: kernels, among the ranks of each host.
  /// Largest all-reduce, in bytes, for which the exchange also offers one_shot; 0: none.
  std::uint64_t one_shot_bytes = 0;
  bool nccl = false;  ///< NCCL, among all ranks and in each dimension along the hosts.
  bool network =
      false;  ///< A network that handles device memory, among all ranks; with `exchange` also between hosts.
  bool host_memory = false;  ///< The same through page-locked host memory.

  /// Whether any carrier is available.
  [[nodiscard]] bool any() const noexcept { return exchange || nccl || network || host_memory; }
  /// Memberwise equality.
  friend bool operator==(const DeviceCarriers&, const DeviceCarriers&) = default;
};

/// The carriers' names, with `one_shot_bytes` after cuda_ipc if it is not 0: "cuda_ipc:393216,nccl".
std::string to_string(const DeviceCarriers& carriers);
/// Reads the text that `to_string` writes. Throws `invalid_argument`, naming the carriers, for other text.
DeviceCarriers device_carriers_from(std::string_view text);

}  // namespace ddl::topology
