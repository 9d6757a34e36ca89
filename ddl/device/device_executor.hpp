#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/communicator/plan_book.hpp"
#include "collectives/device/kernels.hpp"
#include "collectives/system/fail_agreed.hpp"
#include "ddl/context/agreement.hpp"
#include "ddl/context/connect.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/device/device_groups.hpp"
#include "ddl/device/device_timeline.hpp"
#include "ddl/device/dimension_calls.hpp"
#include "ddl/device/reproducible_calls.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
#include "ddl/log.hpp"

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
  DeviceExecutor(const Context& context, const DeviceTable& devices, const DeviceOptions& wanted,
                 DeviceTimeline& timeline)
      : context_(context), timeline_(timeline) {
    const DeviceOptions options = agreed(context, wanted);
    const auto found = device_topology(context, devices);
    groups_.emplace(context, devices, options);
    topology_ = std::make_shared<const topology::Topology>(found->with_carriers(groups_->carriers()));
    if (context.is_root()) save_topology(context.options(), *topology_, ".devices.json", context.log());
    plans_ = plans_of(context.options(), context.size(), [topology = topology_] { return topology; });
    if (groups_->has_dimensions()) {
      constexpr std::size_t least_of_piece = 256;
      const auto pieces = as_index(context.size() + context.hosts());
      const std::size_t bytes = std::max(options.staging_bytes / 4, 2 * pieces * least_of_piece);
      by_dimension_.emplace(context, std::span(groups_->allocate(bytes), bytes));
    }
    if (context.hosts() > 1) {
      const std::size_t bytes = std::max<std::size_t>(options.staging_bytes / 4, least_wire_bytes);
      narrow_memory_ = {groups_->allocate(bytes), bytes};
    }
    const bool is_reproducible = std::ranges::all_of(
        groups_->all(), [](const DeviceGroups::Entry& entry) { return entry.group->is_reproducible(); });
    if (context.options().reproducible && !is_reproducible) {
      const std::size_t bytes =
          std::max(options.staging_bytes, ReproducibleCalls::least_bytes(context.size()));
      reproducible_.emplace(context, std::span(groups_->allocate(bytes), bytes));
    }
  }

  [[nodiscard]] DeviceGroups& groups() noexcept { return *groups_; }
  /// The topology that plans are chosen for, with the carriers of the opened groups.
  [[nodiscard]] const topology::Topology& topology() const { return *topology_; }
  /// The plan for calls of `bytes` bytes, counted as in Communicator::plan. In strict mode throws an agreed
  /// `unsupported` for a plan with notes.
  [[nodiscard]] const topology::Plan& plan(topology::Collective collective, std::size_t bytes, DataType type,
                                           std::optional<DataType> wire = {}) {
    return execution(collective, bytes, type, wire).plan();
  }

  // As in DimensionGroup.
  void run(const DeviceCall& call) {
    if (!context_.options().reproducible || !ReproducibleCalls::concerns(call)) return run_as_planned(call);
    DeviceCall exact = call;
    exact.wire.reset();  // rounding to 16 bits would depend on which ranks share a host
    if (!reproducible_) return run_as_planned(exact);
    reproducible_->run(exact, [this](const DeviceCall& part) { run_as_planned(part); });
  }

  /// Whether calls of `bytes` bytes, counted as in Communicator::plan, can become part of a graph.
  [[nodiscard]] bool can_be_captured(topology::Collective collective, std::size_t bytes, DataType type,
                                     std::optional<DataType> wire) {
    const auto can_be = [&](std::size_t group) { return groups_->all()[group].group->can_be_captured(); };
    if (collective == Collective::barrier) return can_be(groups_->meeting());
    return std::ranges::all_of(execution(collective, bytes, type, wire).groups, can_be);
  }

  void abort() noexcept {
    for (const DeviceGroups::Entry& entry : groups_->all()) entry.group->abort();
  }

  void settle() {
    for (const DeviceGroups::Entry& entry : groups_->all()) entry.group->settle();
  }

  void close(bool in_order) noexcept {
    for (const DeviceGroups::Entry& entry : groups_->all()) entry.group->close(in_order);
  }

  /// The failure of a group; a mismatch takes precedence over other failures.
  [[nodiscard]] std::optional<GroupFailure> failure() {
    std::optional<GroupFailure> found;
    for (std::size_t i = 0; i < groups_->all().size(); ++i) {
      std::optional<GroupFailure> own = groups_->all()[i].group->failure();
      // A mismatch explains more than a timeout.
      if (!own || (found && own->error.code() != ErrorCode::mismatch)) continue;
      own->group = i;
      found = std::move(own);
    }
    return found;
  }

  /// Queued calls, without captured ones. Only for the thread that makes the calls.
  [[nodiscard]] const GroupCalls& given() const noexcept { return given_; }
  /// Completed calls, without captured ones. Thread-safe.
  [[nodiscard]] GroupCalls completed() {
    GroupCalls all;
    std::ranges::transform(groups_->all(), all.of_group.begin(),
                           [](const DeviceGroups::Entry& entry) { return entry.group->completed(); });
    return all;
  }

 private:
  using Carrier = topology::Carrier;
  using Collective = topology::Collective;

  /// The smallest memory for 16-bit parts, enough for any number of ranks.
  static constexpr std::size_t least_wire_bytes = std::size_t{1} << 20;

  static constexpr std::string_view path_names[] = {"automatic", "exchange", "nccl", "ucx", "host"};

  /// Agrees on the options that decide which groups are opened and how calls are cut.
  static DeviceOptions agreed(const Context& context, DeviceOptions options) {
    require_same_entries(context, "DeviceCommunicator", "option",
                         {fmt::format("path {}", path_names[as_index(options.path)])});
    auto least = static_cast<std::int64_t>(options.staging_bytes);
    context.communicator().all_reduce(std::span(&least, 1), ReduceOp::min);
    options.staging_bytes = static_cast<std::size_t>(least);
    if (context.hosts() == 1 || options.path != DevicePathChoice::exchange) return options;
    fail_agreed(ErrorCode::invalid_argument,
                "DeviceOptions::path: the exchange is for the ranks of one host, found {} hosts",
                context.hosts());
  }

  /// The plan of one dimension, as its members execute it.
  static topology::Plan plan_of_dimension(const topology::Plan& plan, std::size_t dimension) {
    const int members = plan.decomposition.size(static_cast<int>(dimension));
    topology::Plan own;
    own.collective = plan.collective;
    own.bytes = plan.bytes;
    own.type = plan.type;
    own.decomposition = topology::Decomposition({members}, {});
    own.dimensions = {plan.dimensions[dimension]};
    own.order.resize(as_index(members));
    std::iota(own.order.begin(), own.order.end(), 0);
    return own;
  }

  /// Queues an all_reduce or reduce_scatter of f32 values that travel in 16 bits: a kernel adds the residual
  /// to the input and rounds the result to `wire`, a group reduces it, and a kernel widens the sums to f32. A
  /// call that does not fit in `memory`, which the groups can reach, is cut.
  static void run_narrow(const DeviceCall& call, DataType wire, const GroupMembers& members,
                         std::span<std::byte> memory, const PassOn& pass_on) {
    using collectives::device::launch_wire;
    constexpr std::size_t in_line = 64;  // elements
    const std::size_t pieces = pieces_of(call.collective, members.size());
    const std::size_t own = pieces > 1 ? as_index(members.rank()) : 0;
    const std::size_t room = memory.size() / size_of(wire) / pieces;
    const std::size_t most = std::max<std::size_t>(room / in_line * in_line, 1);
    // The stream orders the parts, so all of them can use the same memory.
    for (std::size_t first = 0; first < call.count; first += most) {
      const std::size_t length = std::min(most, call.count - first);
      const auto* const input = reinterpret_cast<const float*>(call.input) + first;
      collectives::device::WirePass pass{
          .values = const_cast<float*>(input),  // only read when narrowing
          .residual = call.residual == nullptr ? nullptr : call.residual + first,
          .packed = memory.data(),
          .pieces = pieces,
          .length = length,
          .stride = call.count};
      launch_wire(pass, wire, true, call.stream);
      std::byte* const sums = memory.data() + own * length * size_of(wire);
      DeviceCall narrow = call.part(call.collective, memory.data(), sums, length);
      narrow.type = wire;
      pass_on(narrow);
      pass = {.values = reinterpret_cast<float*>(call.output) + first,
              .packed = sums,
              .length = length,
              .stride = length};
      launch_wire(pass, wire, false, call.stream);
    }
  }

  /// A plan and the groups that execute it.
  struct Execution {
    std::shared_ptr<const collectives::ChosenPlan> chosen;
    std::vector<std::size_t> groups;  ///< A single group, or one for each dimension.
    std::vector<topology::Plan> of_group;

    [[nodiscard]] const topology::Plan& plan() const noexcept { return chosen->plan; }
  };
  [[nodiscard]] const Execution& execution(Collective collective, std::size_t bytes, DataType type,
                                           std::optional<DataType> wire) {
    std::shared_ptr<const collectives::ChosenPlan> chosen = plans_->plan(collective, bytes, type, wire);
    if (const auto known = known_.find(chosen.get()); known != known_.end()) return known->second;
    const topology::Plan& plan = chosen->plan;
    for (const std::string& note : plan.notes) note_shortcoming(context_, note);
    if (context_.is_root()) context_.log().info("plan on devices: " + summary(plan));
    Execution made;
    const bool is_one_program = std::ranges::all_of(
        plan.dimensions, [](Carrier carrier) { return carrier == Carrier::network; },
        &topology::PlanDimension::carrier);
    if (is_one_program || plan.dimensions.size() == 1) {
      made.groups = {groups_->index_of(plan.dimensions.front().carrier, Scope::all)};
      made.of_group = {plan};
    } else {
      for (std::size_t d = 0; d < plan.dimensions.size(); ++d) {
        made.groups.push_back(
            groups_->index_of(plan.dimensions[d].carrier, d == 0 ? Scope::inside : Scope::between));
        made.of_group.push_back(plan_of_dimension(plan, d));
      }
    }
    made.chosen = std::move(chosen);
    const collectives::ChosenPlan* const key = made.chosen.get();
    return known_.emplace(key, std::move(made)).first->second;
  }
  [[nodiscard]] const Execution& execution(const DeviceCall& call) {
    const std::size_t pieces = pieces_of(call.collective, context_.size());
    return execution(call.collective, call.count * pieces * size_of(call.type), call.type, call.wire);
  }

  void run_as_planned(const DeviceCall& call) {
    if (call.collective == Collective::barrier) return pass_on(groups_->meeting(), call);
    const Execution& own = execution(call);
    if (own.groups.size() == 1) return pass_on(own, 0, call);
    by_dimension_->run(call, own.plan().chunks,
                       [&](std::size_t dimension, const DeviceCall& part) { pass_on(own, dimension, part); });
  }

  /// Runs a part of a call by the group, and with the wire type, that the plan names for `dimension`.
  void pass_on(const Execution& execution, std::size_t dimension, DeviceCall part) {
    part.plan = execution.chosen->hash;
    part.steps = &execution.of_group[dimension];
    DeviceTimeline::Scope scope;
    if (timeline_.is_on()) {
      const Carrier carrier = execution.plan().dimensions[dimension].carrier;
      scope = timeline_.scope(fmt::format("{} by {}", to_string(part.collective), to_string(carrier)),
                              part.stream, part.count * size_of(part.type),
                              {part.plan, static_cast<int>(dimension)});
    }
    const std::size_t group = execution.groups[dimension];
    const std::optional<DataType> wire = execution.plan().dimensions[dimension].wire;
    if (!wire || !reduces(part.collective)) return pass_on(group, part);
    run_narrow(part, *wire, groups_->members_of(group), narrow_memory_,
               [&](const DeviceCall& narrow) { pass_on(group, narrow); });
  }

  void pass_on(std::size_t group, const DeviceCall& part) {
    if (!part.is_captured) {
      given_.last = group;
      ++given_.of_group[group];
    }
    groups_->all()[group].group->run(part);
  }

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
