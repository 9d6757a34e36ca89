#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Device memory of each member that all other members have mapped: by CUDA IPC between processes, by plain
/// pointers and peer access between threads of one process.
class PeerMemory {
 public:
  /// A random number that identifies a process.
  using ProcessToken = std::array<std::byte, 16>;
  static const ProcessToken& own_process();

  /// Allocates `bytes` zeroed bytes on each rank, rounded up to blocks of 2 MiB. Collective; waits for the
  /// device. Throws an agreed `unsupported`.
  PeerMemory(GroupMembers& members, std::size_t bytes);
  /// Unmaps the peers' memory and frees the own memory, unless `abandon` was called. Peers must have unmapped
  /// it before: call `unmap` on all ranks, then a barrier.
  ~PeerMemory();
  PeerMemory(PeerMemory&& other) = default;

  void unmap() noexcept;
  /// Leaks the own memory, because peers' kernels may still use it after a failure.
  void abandon() noexcept { own_.release(); }

  [[nodiscard]] std::byte* own() const noexcept { return own_.get(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Each member's memory, at its address on this rank.
  [[nodiscard]] const std::vector<std::byte*>& all() const noexcept { return all_; }
  /// Whether all members are threads of this process.
  [[nodiscard]] bool in_one_process() const noexcept { return in_one_process_; }

 private:
  void share(GroupMembers& members);

  std::size_t bytes_;
  DeviceBytes own_;
  std::vector<std::byte*> all_;
  std::vector<std::byte*> mapped_;  // opened by CUDA IPC
  bool in_one_process_ = true;
};

}  // namespace ddl::device
