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

/// How many calls each group has been given, or has done, and which was given the last one: a user's call is
/// over when the last call of its last group is.
struct GroupCalls {
  std::array<std::uint64_t, DeviceGroups::most> of_group = {};
  std::size_t last = 0;
};

/// Does each call as its plan says. Of one dimension, a group does it; else its parts go to a group inside
/// the hosts and one between them (see DimensionCalls). In reproducible contexts, what keeps the bits is in
/// front (see ReproducibleCalls).
class DeviceExecutor {
 public:
  /// Opens the groups that the options ask for, and has plans for them. Parts of calls are in the timeline,
  /// which outlives this. Collective; errors as DeviceCommunicator's.
  DeviceExecutor(const Context& context, const DeviceTable& devices, const DeviceOptions& options,
                 DeviceTimeline& timeline);

  [[nodiscard]] DeviceGroups& groups() noexcept { return *groups_; }
  /// What plans are chosen for: with the carriers that have been opened.
  [[nodiscard]] const topology::Topology& topology() const { return *topology_; }
  /// The plan of calls of `bytes` bytes, as Communicator::plan counts them. Throws, agreed, `unsupported` for
  /// one with notes in strict mode.
  [[nodiscard]] const topology::Plan& plan(topology::Collective collective, std::size_t bytes, DataType type,
                                           std::optional<DataType> wire = {});

  // As a group's.
  void run(const DeviceCall& call);
  [[nodiscard]] bool can_be_captured(const DeviceCall& call);
  void abort() noexcept;
  void settle();
  void close(bool in_order) noexcept;
  /// What has gone wrong in a group; calls of different names come before others.
  [[nodiscard]] std::optional<GroupFailure> failure();
  /// But for captured calls. For the thread that makes the calls.
  [[nodiscard]] const GroupCalls& given() const noexcept { return given_; }
  /// Any thread.
  [[nodiscard]] GroupCalls completed();

 private:
  /// A plan, and which groups execute it.
  struct Execution {
    std::shared_ptr<const collectives::ChosenPlan> chosen;
    std::vector<std::size_t> groups;  ///< One, or one of each dimension.
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
  std::span<std::byte> narrow_memory_;  // where there are several hosts
  std::map<const collectives::ChosenPlan*, Execution> known_;
  GroupCalls given_;
};

}  // namespace ddl::device
