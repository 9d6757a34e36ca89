#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Collectives through page-locked memory and the host's engine: for several hosts without NCCL. A call is
/// cut into parts that are copied to the host, reduced there and copied back, each while its neighbours are
/// in the other two stages. CUDA's thread for host functions makes the host's calls, so no thread of the
/// trainer waits; ranks must be processes.
class HostGroup final : public DimensionGroup {
 public:
  /// Collective. Throws `unsupported`, agreed, where ranks are threads of one process.
  HostGroup(GroupMembers& members, const DeviceTable& devices);

  void run(const DeviceCall& call) override;
  /// The host's engine reduces.
  [[nodiscard]] bool is_reproducible() const noexcept override { return true; }
  [[nodiscard]] std::uint64_t completed() override { return completed_; }
  void abort() noexcept override {}  // the host's engine ends its calls by itself
  void close(bool in_order) noexcept override;

 private:
  struct Part;
  /// Memory for a part, and when the one before is done with it.
  struct Slot {
    Pinned<std::byte> input, output;
    Event reduced, copied_out;
  };
  static constexpr std::size_t slots = 3;
  static constexpr std::size_t slot_bytes = std::size_t{4} << 20;

  static void reduce_part(void* part);
  void reduce(const DeviceCall& call) noexcept;

  GroupMembers& members_;
  Communicator communicator_;  // for CUDA's thread alone
  Stream in_, reduction_, out_;
  Event joint_;
  Slot slots_[slots];
  std::size_t next_ = 0;

  std::atomic<std::uint64_t> completed_ = 0;  // but for the copy to the device
};

}  // namespace ddl::device
