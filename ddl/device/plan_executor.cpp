#include "ddl/device/plan_executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "ddl/context/context_state.hpp"
#include "ddl/log.hpp"

namespace ddl::device {

using topology::Carrier;
using topology::Collective;

std::vector<DevicePath*> DimensionGroups::all() const {
  std::vector<DevicePath*> result = {exchange, nccl, nccl_inside, nccl_between, between_all, between_hosts};
  std::erase(result, nullptr);
  return result;
}

PlanExecutor::PlanExecutor(Context& context, collectives::PlanBook& plans, const DimensionGroups& groups,
                           ScratchMemory scratch)
    : context_(context), plans_(plans), groups_(groups), all_(groups.all()) {
  if (scratch.data != nullptr) by_dimension_.emplace(context, scratch);
}

const PlanExecutor::Execution& PlanExecutor::execution(Collective collective, std::size_t bytes,
                                                       DataType type) {
  std::shared_ptr<const collectives::ChosenPlan> chosen = plans_.plan(collective, bytes, type);
  if (const auto known = known_.find(chosen.get()); known != known_.end()) return known->second;
  const topology::Plan& plan = chosen->plan;
  for (const std::string& note : plan.notes) note_shortcoming(context_, note);
  if (context_.is_root()) context_.log().info("plan on devices: " + summary(plan));
  Execution made;
  made.is_one_program = std::ranges::all_of(plan.dimensions, [](const topology::PlanDimension& dimension) {
    return dimension.carrier == Carrier::network;
  });
  for (std::size_t d = 0; d < plan.dimensions.size(); ++d) {
    const int members = plan.decomposition.size(static_cast<int>(d));
    topology::Plan& own = made.of_dimension.emplace_back();
    own.collective = plan.collective;
    own.bytes = plan.bytes;
    own.type = plan.type;
    own.decomposition = topology::Decomposition({members}, {});
    own.dimensions = {plan.dimensions[d]};
    own.order.resize(static_cast<std::size_t>(members));
    std::iota(own.order.begin(), own.order.end(), 0);
  }
  made.chosen = std::move(chosen);
  const collectives::ChosenPlan* const key = made.chosen.get();
  return known_.emplace(key, std::move(made)).first->second;
}

const PlanExecutor::Execution& PlanExecutor::execution(const DeviceCall& call) {
  const std::size_t pieces = pieces_of(call.collective, context_.size());
  return execution(call.collective, call.count * pieces * size_of(call.type), call.type);
}

const topology::Plan& PlanExecutor::plan(Collective collective, std::size_t bytes, DataType type) {
  return execution(collective, bytes, type).plan();
}

DevicePath& PlanExecutor::group_of(const Execution& execution, std::size_t dimension) const {
  const bool is_flat = !execution.goes_by_dimension();
  switch (execution.plan().dimensions[dimension].carrier) {
    case Carrier::cuda_ipc:
      return *groups_.exchange;
    case Carrier::nccl:
      return is_flat ? *groups_.nccl : dimension == 0 ? *groups_.nccl_inside : *groups_.nccl_between;
    default:
      return is_flat ? *groups_.between_all : *groups_.between_hosts;
  }
}

DevicePath& PlanExecutor::meeting() const {
  for (DevicePath* const group : {context_.hosts() == 1 ? groups_.exchange : nullptr, groups_.nccl}) {
    if (group != nullptr) return *group;
  }
  return *groups_.between_all;
}

bool PlanExecutor::can_be_captured(const DeviceCall& call) {
  if (call.collective == Collective::barrier) return meeting().can_be_captured(call);
  const Execution& own = execution(call);
  for (std::size_t d = 0; d < own.plan().dimensions.size(); ++d) {
    if (!group_of(own, d).can_be_captured(call)) return false;
  }
  return true;
}

bool PlanExecutor::is_reproducible() const noexcept {
  return std::ranges::all_of(all_, [](const DevicePath* group) { return group->is_reproducible(); });
}

void PlanExecutor::run(const DeviceCall& call) {
  if (call.collective == Collective::barrier) {
    pass_on(meeting(), call);
  } else if (const Execution& own = execution(call); own.goes_by_dimension()) {
    by_dimension_->run(call, own.plan().chunks,
                       [&](std::size_t dimension, const DeviceCall& part) { pass_on(own, dimension, part); });
  } else {
    pass_on(own, 0, call);
  }
  if (call.is_captured) return;
  const std::lock_guard lock(mutex_);
  calls_.push_back(given_);
}

/// A part of a call, as the plan has it in a dimension.
void PlanExecutor::pass_on(const Execution& execution, std::size_t dimension, DeviceCall part) {
  const topology::PlanDimension& way = execution.plan().dimensions[dimension];
  part.plan = execution.chosen->hash;
  part.algorithm = way.algorithm;
  part.steps = execution.goes_by_dimension() ? &execution.of_dimension[dimension] : &execution.plan();
  const bool is_traced = timeline_ != nullptr && timeline_->is_on();
  const std::uint64_t begun = is_traced ? timeline_->begin(part.stream) : 0;
  pass_on(group_of(execution, dimension), part);
  if (begun == 0) return;
  timeline_->end(begun, part.stream,
                 fmt::format("{} by {}", to_string(part.collective), to_string(way.carrier)),
                 part.count * size_of(part.type), {part.plan, static_cast<int>(dimension)});
}

void PlanExecutor::pass_on(DevicePath& group, const DeviceCall& part) {
  if (!part.is_captured) {
    given_.last = static_cast<std::size_t>(std::ranges::find(all_, &group) - all_.begin());
    ++given_.calls[given_.last];
  }
  group.run(part);
}

std::uint64_t PlanExecutor::completed() {
  std::array<std::uint64_t, most_groups> of_groups = {};
  for (std::size_t i = 0; i < all_.size(); ++i) of_groups[i] = all_[i]->completed();
  const std::lock_guard lock(mutex_);
  while (completed_ - forgotten_ < calls_.size() && calls_[completed_ - forgotten_].is_over(of_groups)) {
    ++completed_;
  }
  for (; completed_ - forgotten_ > kept; ++forgotten_) calls_.pop_front();
  return completed_;
}

/// The call that a group's call is of; 0: not known any more.
std::uint64_t PlanExecutor::call_of(std::size_t group, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto of =
      std::ranges::lower_bound(calls_, number, {}, [&](const Given& given) { return given.calls[group]; });
  if (number == 0 || (forgotten_ > 0 && of == calls_.begin())) return 0;
  return forgotten_ + static_cast<std::uint64_t>(of - calls_.begin()) + 1;
}

std::optional<PathFailure> PlanExecutor::failure() {
  std::optional<PathFailure> found;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    std::optional<PathFailure> own = all_[i]->failure();
    // What others call says more than who is late.
    if (!own || (found && own->error.code() != ErrorCode::mismatch)) continue;
    if (own->captured.empty()) own->call = call_of(i, own->call);
    found = std::move(own);
  }
  return found;
}

void PlanExecutor::abort() noexcept {
  for (DevicePath* const group : all_) group->abort();
}

void PlanExecutor::settle() {
  for (DevicePath* const group : all_) group->settle();
}

void PlanExecutor::close(bool in_order) noexcept {
  for (DevicePath* const group : all_) group->close(in_order);
}

}  // namespace ddl::device
