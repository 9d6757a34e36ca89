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

/// Collectives through a UCX that knows devices' memory, by a worker of its own: what is sent and received is
/// that memory (over GPUDirect RDMA where the fabric has it), and kernels reduce it. The plans are those of
/// the host's engine, for the job's topology.
///
/// A thread takes the calls in their order; each begins when its stream has come to it. Behind it the stream
/// holds a kernel of one thread that waits for word in the host's memory: unlike functions of the host, of
/// which CUDA has one thread do all of a process's, it keeps nothing else waiting, so ranks may be threads,
/// and UCX's own callbacks run. It ends by itself, at the deadline, should the thread stand still. What the
/// thread queues goes to a stream of the highest priority: devices have a queue for several streams of one
/// priority, and what is needed to end a hold must not stand behind what waits for the hold.
class UcxGroup final : public DimensionGroup {
 public:
  /// On the device that is selected. `staging_bytes`: see DeviceOptions. Collective; errors are agreed:
  /// `unsupported` where UCX cannot be used, does not know devices' memory, or nothing of it arrives;
  /// `invalid_argument` for too few `staging_bytes`.
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
  void ring() noexcept;

  GroupMembers& members_;
  const int device_;
  std::unique_ptr<collectives::UcxNetwork> network_;
  BlockBudget budget_{BlockBudget::Half::holds};
  Pinned<collectives::device::Gate> gate_;
  StreamMark reached_;           // calls, by their streams
  bool flushes_writes_ = false;  // of the network's adapters, before a kernel that runs may see them
  std::optional<NetworkCalls> calls_;
  collectives::FileDescriptor bell_;

  std::uint64_t called_ = 0;
  std::atomic<std::uint64_t> completed_ = 0;
  std::atomic<bool> is_concluded_ = false;
  bool is_closed_ = false;  // for the thread alone
  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;  // of the thread
  std::thread thread_;
};

}  // namespace ddl::device
