#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ddl/device/nccl/nccl_library.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
#include "ddl/work.hpp"

namespace ddl::device {

/// Collectives by NCCL. Its kernels wait without a timeout, so `failure` must be called regularly. NCCL does
/// not check that ranks make the same calls: different operations give wrong results, and different counts
/// may. So the hosts compare fingerprints of 64 calls at a time, asynchronously.
class NcclGroup final : public DimensionGroup {
 public:
  /// Uses the selected device. `name` is for messages. Collective; throws agreed errors: `unsupported`
  /// without NCCL or if members share a device, `timeout` at the deadline, `internal` with NCCL's message.
  NcclGroup(std::string name, GroupMembers& members, const DeviceTable& devices);
  ~NcclGroup() override;

  void run(const DeviceCall& call) override;
  [[nodiscard]] bool can_be_captured() const noexcept override { return true; }
  [[nodiscard]] std::uint64_t completed() override { return done_.value(); }
  [[nodiscard]] std::optional<GroupFailure> failure() override;
  /// Also works while another thread is blocked in a launch behind waiting kernels.
  void abort() noexcept override;
  void settle() override;
  void close(bool in_order) noexcept override;

 private:
  NcclGroup(std::string name, GroupMembers& members);
  void open();
  void queue(const DeviceCall& call);
  [[nodiscard]] ncclResult_t launch(const DeviceCall& call) const;
  void compare();
  void mark(DeviceStream stream);
  void abort_communicator() noexcept;
  [[nodiscard]] std::optional<Error> failure_of_nccl() const;
  [[nodiscard]] ncclResult_t within_deadline(const char* name, std::function<ncclResult_t()> function) const;
  [[nodiscard]] Error error_of(ncclResult_t result, const char* function) const;

  const std::string name_;
  GroupMembers& members_;
  DeviceBytes meeting_;  // the byte that barriers reduce
  StreamMark done_;      // completed calls
  std::atomic<std::uint64_t> called_ = 0;

  // Comparison of the ranks' calls.
  static constexpr std::size_t compared_at_once = 64;
  Communicator comparing_;
  std::uint64_t history_ = 0;
  std::vector<std::int64_t> fingerprints_;                     // not compared yet
  std::uint64_t compared_ = 0;                                 // number of compared calls
  Work comparison_;                                            // the last comparison
  const std::shared_ptr<std::atomic<std::uint64_t>> differs_;  // the first call found to differ; 0: none

  mutable std::mutex mutex_;  // protects the members below; not held during launches
  ncclComm_t communicator_ = nullptr;
  bool is_in_call_ = false;
  bool is_aborted_ = false;
  // The deadline counts from `progress_`, the time when `seen_` calls were found complete.
  std::uint64_t seen_ = 0;
  std::chrono::steady_clock::time_point progress_;
};

}  // namespace ddl::device
