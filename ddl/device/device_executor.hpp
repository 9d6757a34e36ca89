#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator/plan_book.hpp"
#include "ddl/device/device_groups.hpp"
#include "ddl/device/device_timeline.hpp"
#include "ddl/device/dimension_calls.hpp"
#include "ddl/device/reproducible_calls.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// The number of calls that each group has queued, or has completed, and the group that queued last. A user's
/// call is complete when the last call of its last group is.
struct GroupCalls {
  std::array<std::uint64_t, DeviceGroups::most> of_group = {};
  std::size_t last = 0;
};

/// Executes each call by its plan. A single group executes a plan of one dimension; the parts of other plans
/// go to a group inside the hosts and a group between them (see DimensionCalls). In reproducible contexts
/// ReproducibleCalls first turns the call into calls with an exact result.
class DeviceExecutor {
 public:
  /// Opens the groups that the options ask for, and the plans for them. Records parts of calls in `timeline`,
  /// which must outlive the executor. Collective; throws as DeviceCommunicator's constructor.
  DeviceExecutor(const Context& context, const DeviceTable& devices, const DeviceOptions& options,
                 DeviceTimeline& timeline);

  [[nodiscard]] DeviceGroups& groups() noexcept { return *groups_; }
  /// The topology that plans are chosen for, with the carriers of the opened groups.
  [[nodiscard]] const topology::Topology& topology() const { return *topology_; }
  /// The plan for calls of `bytes` bytes, counted as in Communicator::plan. In strict mode throws an agreed
  /// `unsupported` for a plan with notes.
  [[nodiscard]] const topology::Plan& plan(topology::Collective collective, std::size_t bytes, DataType type,
                                           std::optional<DataType> wire = {});

  // As in DimensionGroup.
  void run(const DeviceCall& call);
  [[nodiscard]] bool can_be_captured(const DeviceCall& call);
  void abort() noexcept;
  void settle();
  void close(bool in_order) noexcept;
  /// The failure of a group; a mismatch takes precedence over other failures.
  [[nodiscard]] std::optional<GroupFailure> failure();
  /// Queued calls, without captured ones. Only for the thread that makes the calls.
  [[nodiscard]] const GroupCalls& given() const noexcept { return given_; }
  /// Completed calls, without captured ones. Thread-safe.
  [[nodiscard]] GroupCalls completed();

 private:
  /// A plan and the groups that execute it.
  struct Execution {
    std::shared_ptr<const collectives::ChosenPlan> chosen;
    std::vector<std::size_t> groups;  ///< A single group, or one for each dimension.
    std::vector<topology::Plan> of_group;

    [[nodiscard]] const topology::Plan& plan() const noexcept { return chosen->plan; }
  };
  [[nodiscard]] const Execution& execution(topology::Collective collective, std::size_t bytes, DataType type,
                                           std::optional<DataType> wire);
  [[nodiscard]] const Execution& execution(const DeviceCall& call);
  void run_as_planned(const DeviceCall& call);
  void pass_on(const Execution& execution, std::size_t dimension, DeviceCall part);
  void pass_on(std::size_t group, const DeviceCall& part);

  Context context_;
  DeviceTimeline& timeline_;
  std::optional<DeviceGroups> groups_;
  std::shared_ptr<const topology::Topology> topology_;
  std::shared_ptr<collectives::PlanBook> plans_;
  std::optional<DimensionCalls> by_dimension_;
  std::optional<ReproducibleCalls> reproducible_;
  std::span<std::byte> narrow_memory_;  // empty on a single host
  std::map<const collectives::ChosenPlan*, Execution> known_;
  GroupCalls given_;
};

}  // namespace ddl::device
