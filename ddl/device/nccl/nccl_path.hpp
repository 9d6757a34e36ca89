#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/device/cuda_handles.hpp"
#include "ddl/device/device_path.hpp"
#include "ddl/device/device_table.hpp"
#include "ddl/device/nccl/fingerprints.hpp"
#include "ddl/device/nccl/nccl_group.hpp"
#include "ddl/device/nccl/scatter_gather.hpp"
#include "ddl/device/stream_mark.hpp"

namespace ddl::device {

/// Collectives by NCCL: over all ranks at once, and large all-reduces on several hosts, if the topology's
/// plan says that it is faster, as a reduce-scatter inside the hosts, an all-reduce between them and an
/// all-gather inside, chunk after chunk on two streams. NCCL's kernels wait for ever: `failure` must be asked
/// for now and then.
class NcclPath : public DevicePath {
 public:
  /// On the device that is selected. Collective; errors are agreed: `unsupported` without NCCL, or where
  /// ranks share a device (NCCL refuses that), and NcclGroup's.
  /// `topology`: of the ranks' devices.
  NcclPath(Context& context, const DeviceTable& devices, std::shared_ptr<const topology::Topology> topology);
  ~NcclPath() override;

  void run(const DeviceCall& call) override;
  [[nodiscard]] bool can_be_captured() const noexcept override { return true; }
  [[nodiscard]] bool goes_by_dimension(const DeviceCall& call) override;
  [[nodiscard]] std::uint64_t completed() override { return done_.value(); }
  [[nodiscard]] std::optional<PathFailure> failure() override;
  void abort() noexcept override;
  void settle() override;
  void close(bool in_order) noexcept override;

 private:
  void run_on_all(const DeviceCall& call);
  void run_by_dimension(const DeviceCall& call);
  void join(cudaStream_t first, cudaStream_t then);
  void mark(cudaStream_t stream);

  Context& context_;
  std::shared_ptr<const topology::Topology> topology_;
  std::unique_ptr<NcclGroup> all_;
  std::unique_ptr<NcclGroup> inner_;  // of this host; null unless the hosts have as many ranks each
  std::unique_ptr<NcclGroup> outer_;  // of this rank's like on all hosts
  std::vector<std::optional<bool>> by_dimension_;  // by the logarithm of the bytes
  Stream inner_stream_, outer_stream_;
  std::byte* meeting_ = nullptr;  // what barriers reduce

  std::unique_ptr<Fingerprints> fingerprints_;

  Event joint_;      // may be recorded again at once: who waits for it waits for what it held by then
  StreamMark done_;  // calls
  std::atomic<std::uint64_t> called_ = 0;

  std::mutex mutex_;  // of what the deadline counts from
  std::uint64_t seen_ = 0;
  std::chrono::steady_clock::time_point progress_;
};

}  // namespace ddl::device
