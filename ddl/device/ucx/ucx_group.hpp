#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "collectives/system/descriptors.hpp"
#include "collectives/transports/network/ucx_network.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
#include "ddl/device/ucx/network_calls.hpp"

namespace ddl::device {

/// Whether the network accepts pointers to device memory. Tests on emulated devices, whose memory is the
/// host's, define their own version.
bool carries_device_memory(const collectives::UcxNetwork& network);

/// Collectives through a CUDA-aware UCX worker of the group's own: UCX sends and receives device memory (over
/// GPUDirect RDMA where the fabric has it), and kernels reduce it. Programs are lowered from plans as in the
/// host engine.
///
/// A thread runs the calls in order; each starts when its stream has reached it. There the stream is blocked
/// by a hold, a kernel of one thread that polls a flag in host memory. CUDA runs all host functions of a
/// process on one thread, so a host function would block other ranks in the process and UCX's own callbacks;
/// a hold does not. A hold ends by itself at the deadline if the group's thread makes no progress. The thread
/// queues its work on a stream of the highest priority: streams of the same priority may share a hardware
/// queue, and the work that a hold waits for must not be queued behind work that waits for the hold.
class UcxGroup final : public DimensionGroup {
 public:
  /// Uses the selected device. `staging_bytes`: see DeviceOptions. Collective; throws agreed errors:
  /// `unsupported` if UCX cannot be used, does not know device memory or delivers wrong data;
  /// `invalid_argument` if `staging_bytes` is too small.
  UcxGroup(GroupMembers& members, const DeviceTable& devices, std::size_t staging_bytes);
  ~UcxGroup() override;

  void run(const DeviceCall& call) override;
  [[nodiscard]] std::uint64_t completed() override { return completed_; }
  [[nodiscard]] std::optional<GroupFailure> failure() override;
  void abort() noexcept override;
  void settle() override;
  void close(bool in_order) noexcept override;

 private:
  void take_blocks();
  void push(std::function<void()> task);
  void work() noexcept;
  void work_off();
  void sleep_until_called();
  void release();

  GroupMembers& members_;
  const int device_;
  std::unique_ptr<collectives::UcxNetwork> network_;
  BlockBudget budget_{BlockBudget::Half::holds};
  Pinned<collectives::device::Gate> gate_;
  StreamMark reached_;           // calls that their streams have reached
  bool flushes_writes_ = false;  // see needs_flush_of_writes
  std::optional<NetworkCalls> calls_;
  collectives::FileDescriptor bell_;

  std::uint64_t called_ = 0;
  std::atomic<std::uint64_t> completed_ = 0;
  std::atomic<bool> is_concluded_ = false;
  bool is_closed_ = false;  // only used by the thread
  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;  // for the thread
  std::thread thread_;
};

}  // namespace ddl::device
