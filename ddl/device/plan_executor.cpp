#include "ddl/device/plan_executor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/device/network_kernels.hpp"
#include "ddl/cuda_check.hpp"
#include "ddl/device/scatter_gather.hpp"

namespace ddl::device {

using topology::Carrier;
using topology::Collective;

std::vector<DevicePath*> DimensionGroups::all() const {
  std::vector<DevicePath*> result = {exchange, nccl, nccl_inside, nccl_between, between_all, between_hosts};
  std::erase(result, nullptr);
  return result;
}

PlanExecutor::PlanExecutor(Context& context, DevicePlans& plans, const DimensionGroups& groups)
    : context_(context), plans_(plans), groups_(groups), all_(groups.all()) {
  context.on_all_ranks("plans on devices", [&] {
    check_cuda(collectives::device::load_network_kernels(), "cudaFuncGetAttributes");
    for (Stream* stream : {&inner_stream_, &outer_stream_}) *stream = make_stream();
    joint_ = make_event();
  });
}

const DevicePlan& PlanExecutor::plan_of(const DeviceCall& call) {
  const std::size_t pieces = pieces_of(call.collective, context_.size());
  return plans_.of(call.collective, call.count * pieces * size_of(call.type), call.type);
}

DevicePath& PlanExecutor::group_of(const DevicePlan& plan, std::size_t dimension) const {
  const bool is_flat = !plan.goes_by_dimension();
  switch (plan.plan.dimensions[dimension].carrier) {
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

bool PlanExecutor::goes_by_dimension(const DeviceCall& call) {
  return call.collective == Collective::all_reduce && plan_of(call).goes_by_dimension();
}

bool PlanExecutor::can_be_captured(const DeviceCall& call) {
  if (call.collective == Collective::barrier) return meeting().can_be_captured(call);
  const DevicePlan& plan = plan_of(call);
  for (std::size_t d = 0; d < plan.plan.dimensions.size(); ++d) {
    if (!group_of(plan, d).can_be_captured(call)) return false;
  }
  return true;
}

bool PlanExecutor::is_reproducible() const noexcept {
  return std::ranges::all_of(all_, [](const DevicePath* group) { return group->is_reproducible(); });
}

void PlanExecutor::run(const DeviceCall& call) {
  if (call.collective == Collective::barrier) {
    pass_on(meeting(), call);
  } else if (const DevicePlan& plan = plan_of(call); plan.goes_by_dimension()) {
    run_by_dimension(call, plan);
  } else {
    pass_on(plan, 0, call);
  }
  if (call.is_captured) return;
  const std::lock_guard lock(mutex_);
  calls_.push_back(given_);
}

/// A part of a call, as the plan has it in a dimension.
void PlanExecutor::pass_on(const DevicePlan& plan, std::size_t dimension, DeviceCall part) {
  const topology::PlanDimension& way = plan.plan.dimensions[dimension];
  const bool is_whole = !plan.goes_by_dimension();
  part.plan = plan.hash;
  part.algorithm = way.algorithm;
  part.steps = is_whole ? &plan.plan : &plan.of_dimension[dimension];
  const bool is_traced = timeline_ != nullptr && timeline_->is_on();
  const std::uint64_t begun = is_traced ? timeline_->begin(part.stream) : 0;
  pass_on(group_of(plan, dimension), part);
  if (begun == 0) return;
  timeline_->end(begun, part.stream,
                 fmt::format("{} by {}", to_string(part.collective), to_string(way.carrier)),
                 part.count * size_of(part.type), {plan.hash, static_cast<int>(dimension)});
}

void PlanExecutor::pass_on(DevicePath& group, const DeviceCall& part) {
  if (!part.is_captured) {
    given_.last = static_cast<std::size_t>(std::ranges::find(all_, &group) - all_.begin());
    ++given_.calls[given_.last];
  }
  group.run(part);
}

/// What is queued on `then` from now on waits for what is queued on `first`.
void PlanExecutor::join(DeviceStream first, DeviceStream then) {
  check_cuda(cudaEventRecord(joint_.get(), first), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(then, joint_.get(), 0), "cudaStreamWaitEvent");
}

/// Sums become averages, where they are first complete.
void PlanExecutor::finish(const DeviceCall& call, std::byte* values, std::size_t count, DeviceStream stream) {
  if (call.op != ReduceOp::avg) return;
  collectives::device::Combination whole{
      .target = values, .operands = 1, .divisor = context_.size(), .elements = count};
  whole.sources[0] = values;
  check_cuda(collectives::device::launch_combine(whole, call.type, ReduceOp::avg, stream),
             "launch of a combination");
}

void PlanExecutor::run_by_dimension(const DeviceCall& call, const DevicePlan& plan) {
  const std::size_t element = size_of(call.type);
  const auto members = static_cast<std::size_t>(plan.plan.decomposition.size(0));
  const auto own_member = static_cast<std::size_t>(context_.local_rank());
  const DeviceStream inside = inner_stream_.get();
  const DeviceStream between = outer_stream_.get();
  const auto part = [&](std::size_t dimension, Collective collective, const std::byte* input,
                        std::byte* output, std::size_t count) {
    DeviceCall made = call;
    made.part_of = call.called();
    made.collective = collective;
    made.input = input;
    made.output = output;
    made.count = count;
    made.op = call.op == ReduceOp::avg ? ReduceOp::sum : call.op;
    made.stream = dimension == 0 ? inside : between;
    pass_on(plan, dimension, made);
  };
  const ScatterGather cut = scatter_gather(call.count, members, static_cast<std::size_t>(plan.plan.chunks));
  const auto own = [&](const ScatterGatherChunk& chunk) {
    return call.output + (chunk.first + own_member * chunk.part) * element;
  };
  const auto gather = [&](const ScatterGatherChunk& chunk) {
    join(between, inside);
    part(0, Collective::all_gather, own(chunk), call.output + chunk.first * element, chunk.part);
  };
  join(call.stream, inside);
  join(call.stream, between);
  for (std::size_t i = 0; i < cut.chunks.size(); ++i) {
    const ScatterGatherChunk& chunk = cut.chunks[i];
    part(0, Collective::reduce_scatter, call.input + chunk.first * element, own(chunk), chunk.part);
    // The chunk before this one is gathered behind this one's scattering: by then it has been between the
    // hosts.
    if (i > 0) gather(cut.chunks[i - 1]);
    join(inside, between);
    part(1, Collective::all_reduce, own(chunk), own(chunk), chunk.part);
    finish(call, own(chunk), chunk.part, between);
  }
  if (!cut.chunks.empty()) gather(cut.chunks.back());
  if (cut.rest > 0) {  // fewer than a host has ranks: each has all of them
    std::byte* const rest = call.output + (call.count - cut.rest) * element;
    part(0, Collective::all_reduce, call.input + (call.count - cut.rest) * element, rest, cut.rest);
    join(inside, between);
    part(1, Collective::all_reduce, rest, rest, cut.rest);
    finish(call, rest, cut.rest, between);
    join(between, inside);
  }
  join(inside, call.stream);
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
