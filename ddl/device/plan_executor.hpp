#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/communicator/plan_book.hpp"
#include "ddl/device/runtime/device_path.hpp"
#include "ddl/device/device_timeline.hpp"
#include "ddl/device/dimension_calls.hpp"

namespace ddl::device {

/// What can do a plan's dimensions; null where there is none. All outlive the executor.
struct DimensionGroups {
  DevicePath* exchange = nullptr;  ///< Of the ranks of a host.
  DevicePath* nccl = nullptr;      ///< Of all ranks; then of those of a host, and of the same index.
  DevicePath* nccl_inside = nullptr;
  DevicePath* nccl_between = nullptr;
  DevicePath* between_all = nullptr;    ///< By the network or the hosts' memory: of all ranks,
  DevicePath* between_hosts = nullptr;  ///< and of those of the same index on their hosts.

  [[nodiscard]] std::vector<DevicePath*> all() const;
};

/// Does each call as its plan says. Of one dimension, a group does it; else its parts go to a group inside
/// the hosts and one between them (see DimensionCalls).
class PlanExecutor : public DevicePath {
 public:
  /// `scratch`: where there are groups by dimension. Collective; errors are agreed.
  PlanExecutor(Context& context, collectives::PlanBook& plans, const DimensionGroups& groups,
               ScratchMemory scratch);

  /// From now on each part of a call is in the timeline, which outlives this.
  void trace(DeviceTimeline& timeline) { timeline_ = &timeline; }
  /// The plan of calls of `bytes` bytes, as Communicator::plan counts them. Throws, agreed, `unsupported` for
  /// one with notes in strict mode.
  [[nodiscard]] const topology::Plan& plan(topology::Collective collective, std::size_t bytes, DataType type);

  void run(const DeviceCall& call) override;
  [[nodiscard]] bool can_be_captured(const DeviceCall& call) override;
  [[nodiscard]] bool is_reproducible() const noexcept override;
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
  /// A plan, and what its execution needs of it.
  struct Execution {
    std::shared_ptr<const collectives::ChosenPlan> chosen;
    bool is_one_program;  ///< A network's group does all of it, and not a group a dimension.
    std::vector<topology::Plan> of_dimension;  ///< For a group that runs steps.

    [[nodiscard]] const topology::Plan& plan() const noexcept { return chosen->plan; }
    [[nodiscard]] bool goes_by_dimension() const noexcept {
      return !is_one_program && plan().dimensions.size() > 1;
    }
  };
  [[nodiscard]] const Execution& execution(topology::Collective collective, std::size_t bytes, DataType type);
  [[nodiscard]] const Execution& execution(const DeviceCall& call);
  [[nodiscard]] DevicePath& group_of(const Execution& execution, std::size_t dimension) const;
  [[nodiscard]] DevicePath& meeting() const;
  void pass_on(DevicePath& group, const DeviceCall& part);
  void pass_on(const Execution& execution, std::size_t dimension, DeviceCall part);
  [[nodiscard]] std::uint64_t call_of(std::size_t group, std::uint64_t number);

  Context& context_;
  collectives::PlanBook& plans_;
  const DimensionGroups groups_;
  const std::vector<DevicePath*> all_;
  std::optional<DimensionCalls> by_dimension_;
  std::map<const collectives::ChosenPlan*, Execution> known_;
  DeviceTimeline* timeline_ = nullptr;
  Given given_;  // so far

  std::mutex mutex_;
  std::deque<Given> calls_;      // from call number forgotten_ + 1 on
  std::uint64_t forgotten_ = 0;  // calls that are over and not kept
  std::uint64_t completed_ = 0;
};

}  // namespace ddl::device
