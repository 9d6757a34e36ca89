#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_path.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/nccl/fingerprints.hpp"
#include "ddl/device/nccl/nccl_group.hpp"

namespace ddl::device {

/// Collectives of a group's members by NCCL, whose kernels wait for ever: `failure` must be asked for now and
/// then.
class NcclPath : public DevicePath {
 public:
  /// On the device that is selected. `name`: for messages. Collective; errors are agreed: `unsupported`
  /// without NCCL, or where members share a device (NCCL refuses that), and NcclGroup's.
  NcclPath(std::string name, GroupMembers& members, const DeviceTable& devices);
  ~NcclPath() override;

  void run(const DeviceCall& call) override;
  [[nodiscard]] bool can_be_captured(const DeviceCall&) override { return true; }
  [[nodiscard]] std::uint64_t completed() override { return done_.value(); }
  [[nodiscard]] std::optional<PathFailure> failure() override;
  void abort() noexcept override;
  void settle() override;
  void close(bool in_order) noexcept override;

 private:
  void queue(const DeviceCall& call);
  void mark(cudaStream_t stream);

  GroupMembers& members_;
  std::unique_ptr<NcclGroup> group_;
  Stream stream_;                 // for what is compared last
  std::byte* meeting_ = nullptr;  // what barriers reduce
  std::unique_ptr<Fingerprints> fingerprints_;
  StreamMark done_;  // calls
  std::atomic<std::uint64_t> called_ = 0;

  std::mutex mutex_;  // of what the deadline counts from
  std::uint64_t seen_ = 0;
  std::chrono::steady_clock::time_point progress_;
};

}  // namespace ddl::device
