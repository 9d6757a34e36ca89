#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Collectives through page-locked memory and the host engine, for several hosts without NCCL and UCX. Calls
/// are cut into parts, and the three stages of each part (copy to the host, host collective, copy back) are
/// pipelined. CUDA's thread for host functions runs the host collectives, so no thread of the trainer waits,
/// but each rank must be a process.
class HostGroup final : public DimensionGroup {
 public:
  /// Collective. Throws an agreed `unsupported` if ranks are threads of one process.
  HostGroup(GroupMembers& members, const DeviceTable& devices);

  void run(const DeviceCall& call) override;
  [[nodiscard]] bool is_reproducible() const noexcept override { return true; }  // the host engine reduces
  [[nodiscard]] std::uint64_t completed() override { return completed_; }
  void abort() noexcept override {}  // the host engine ends its own calls
  void close(bool in_order) noexcept override;

 private:
  struct Part;
  /// Memory for a part, and the events after which the next part may use it.
  struct Slot {
    Pinned<std::byte> input, output;
    Event reduced, copied_out;
  };
  static constexpr std::size_t slots = 3;
  static constexpr std::size_t slot_bytes = std::size_t{4} << 20;

  static void reduce_part(void* part);
  void reduce(const DeviceCall& call) noexcept;

  GroupMembers& members_;
  Communicator communicator_;  // used only by CUDA's host function thread
  Stream in_, reduction_, out_;
  Event joint_;
  Slot slots_[slots];
  std::size_t next_ = 0;

  std::atomic<std::uint64_t> completed_ = 0;  // calls reduced on the host; the copy back may be in flight
};

}  // namespace ddl::device
