#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "ddl/device/cuda_handles.hpp"
#include "ddl/device/device_path.hpp"
#include "ddl/device/device_plans.hpp"
#include "ddl/device/device_timeline.hpp"

namespace ddl::device {

/// What can do a plan's dimensions; null where there is none. All outlive the executor.
struct DimensionGroups {
  DevicePath* exchange = nullptr;  ///< Of the ranks of a host.
  DevicePath* nccl = nullptr;      ///< Of all ranks; then of those of a host, and of the same index.
  DevicePath* nccl_inside = nullptr;
  DevicePath* nccl_between = nullptr;
  DevicePath* between_all = nullptr;    ///< By DeviceCarriers::between: of all ranks,
  DevicePath* between_hosts = nullptr;  ///< and of those of the same index on their hosts.

  [[nodiscard]] std::vector<DevicePath*> all() const;
};

/// Does each call as its plan says. Of one dimension, a group does it. An all_reduce by dimension goes in
/// chunks: a reduce_scatter inside the hosts, an all_reduce between them and an all_gather inside, each
/// dimension on a stream of its own, joined by events, so that chunks follow one another.
class PlanExecutor : public DevicePath {
 public:
  /// On the device that is selected. Collective; errors are agreed.
  PlanExecutor(Context& context, DevicePlans& plans, const DimensionGroups& groups);

  /// From now on each part of a call is in the timeline, which outlives this.
  void trace(DeviceTimeline& timeline) { timeline_ = &timeline; }

  void run(const DeviceCall& call) override;
  [[nodiscard]] bool can_be_captured(const DeviceCall& call) override;
  [[nodiscard]] bool is_reproducible() const noexcept override;
  [[nodiscard]] bool goes_by_dimension(const DeviceCall& call) override;
  [[nodiscard]] std::uint64_t completed() override;
  [[nodiscard]] std::optional<PathFailure> failure() override;
  void abort() noexcept override;
  void settle() override;
  void close(bool in_order) noexcept override;

 private:
  static constexpr std::size_t most_groups = 6;
  static constexpr std::size_t kept = 256;  // of the calls that are over
  /// How many calls each group has been given, up to the end of one of this path's. That is over when the
  /// call of the last group is.
  struct Given {
    std::array<std::uint64_t, most_groups> calls = {};
    std::size_t last = 0;

    [[nodiscard]] bool is_over(const std::array<std::uint64_t, most_groups>& completed) const {
      return completed[last] >= calls[last];
    }
  };
  [[nodiscard]] const DevicePlan& plan_of(const DeviceCall& call);
  [[nodiscard]] DevicePath& group_of(const DevicePlan& plan, std::size_t dimension) const;
  [[nodiscard]] DevicePath& meeting() const;
  void run_by_dimension(const DeviceCall& call, const DevicePlan& plan);
  void pass_on(DevicePath& group, const DeviceCall& part);
  void pass_on(const DevicePlan& plan, std::size_t dimension, DeviceCall part);
  void finish(const DeviceCall& call, std::byte* values, std::size_t count, DeviceStream stream);
  void join(DeviceStream first, DeviceStream then);
  [[nodiscard]] std::uint64_t call_of(std::size_t group, std::uint64_t number);

  Context& context_;
  DevicePlans& plans_;
  const DimensionGroups groups_;
  const std::vector<DevicePath*> all_;
  DeviceTimeline* timeline_ = nullptr;
  Stream inner_stream_, outer_stream_;
  Event joint_;  // may be recorded again at once: who waits for it waits for what it held by then
  Given given_;  // so far

  std::mutex mutex_;
  std::deque<Given> calls_;      // from call number forgotten_ + 1 on
  std::uint64_t forgotten_ = 0;  // calls that are over and not kept
  std::uint64_t completed_ = 0;
};

}  // namespace ddl::device
