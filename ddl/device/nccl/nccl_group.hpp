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

/// Collectives of a group's members by NCCL, whose kernels wait for ever: `failure` must be asked for now and
/// then. NCCL does not compare what ranks call: different operations give wrong numbers, and different counts
/// may. So the hosts compare fingerprints of 64 calls at a time, without waiting for one another.
class NcclGroup final : public DimensionGroup {
 public:
  /// On the device that is selected. `name`: for messages. Collective; errors are agreed: `unsupported`
  /// without NCCL, or where members share a device (NCCL refuses that), `timeout` once the deadline has
  /// passed, `internal` with what NCCL says.
  NcclGroup(std::string name, GroupMembers& members, const DeviceTable& devices);
  ~NcclGroup() override;

  void run(const DeviceCall& call) override;
  [[nodiscard]] bool can_be_captured() const noexcept override { return true; }
  [[nodiscard]] std::uint64_t completed() override { return done_.value(); }
  [[nodiscard]] std::optional<GroupFailure> failure() override;
  /// Also while the other thread is in a call that blocks, because the launch queue is full of kernels that
  /// wait.
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
  DeviceBytes meeting_;  // what barriers reduce
  StreamMark done_;      // calls
  std::atomic<std::uint64_t> called_ = 0;

  // What ranks have called.
  static constexpr std::size_t compared_at_once = 64;
  Communicator comparing_;
  std::uint64_t history_ = 0;
  std::vector<std::int64_t> fingerprints_;                     // that are to be compared
  std::uint64_t compared_ = 0;                                 // calls
  Work comparison_;                                            // the last one
  const std::shared_ptr<std::atomic<std::uint64_t>> differs_;  // the first call that is known to; 0: none

  mutable std::mutex mutex_;  // of what follows; no launch is made under it
  ncclComm_t communicator_ = nullptr;
  bool is_in_call_ = false;
  bool is_aborted_ = false;
  // What the deadline counts from.
  std::uint64_t seen_ = 0;
  std::chrono::steady_clock::time_point progress_;
};

}  // namespace ddl::device
