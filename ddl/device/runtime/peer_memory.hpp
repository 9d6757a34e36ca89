#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Device memory of each member that all others have mapped: CUDA IPC between processes, plain pointers and
/// peer access between threads of one.
class PeerMemory {
 public:
  /// What tells a process from all others.
  using ProcessToken = std::array<std::byte, 16>;
  static const ProcessToken& own_process();

  /// `bytes` zeros of each rank. Collective, and waits for the device. Throws, agreed, `unsupported`.
  PeerMemory(GroupMembers& members, std::size_t bytes);
  /// Lets go of the others' memory and gives back its own, unless `abandon` was called. The others must not
  /// use it any more; call `unmap`, and meet, before.
  ~PeerMemory();
  PeerMemory(PeerMemory&& other) = default;

  void unmap() noexcept;
  /// After a failure others' kernels may still use it: it is never given back.
  void abandon() noexcept { own_.release(); }

  [[nodiscard]] std::byte* own() const noexcept { return own_.get(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Of each rank, as this one reaches it.
  [[nodiscard]] const std::vector<std::byte*>& all() const noexcept { return all_; }
  /// Whether all ranks are threads of this process.
  [[nodiscard]] bool in_one_process() const noexcept { return in_one_process_; }

 private:
  void share(GroupMembers& members);

  std::size_t bytes_;
  DeviceBytes own_;
  std::vector<std::byte*> all_;
  std::vector<std::byte*> mapped_;  // by IPC
  bool in_one_process_ = true;
};

}  // namespace ddl::device
