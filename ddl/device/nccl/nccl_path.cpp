#include "ddl/device/nccl/nccl_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "ddl/cuda_check.hpp"

namespace ddl::device {
namespace {

using topology::Collective;
using Clock = std::chrono::steady_clock;

/// NCCL refuses ranks that share a device, with a message that says little, unless it takes them for ranks on
/// several hosts.
void refuse_shared_devices(const GroupMembers& members, const DeviceTable& devices) {
  if (std::getenv("NCCL_HOSTID") != nullptr) return;
  for (const int rank : members.ranks()) {
    const auto shares = [&](int other) { return devices.of(other).uuid == devices.of(rank).uuid; };
    if (std::ranges::count_if(members.ranks(), shares) == 1) continue;
    throw Error(ErrorCode::unsupported,
                fmt::format("NCCL cannot be used: rank {} shares its device with another one", rank));
  }
}

}  // namespace

NcclPath::NcclPath(std::string name, GroupMembers& members, const DeviceTable& devices) : members_(members) {
  Context& context = members.context();
  context.on_all_ranks("NCCL", [&] { NcclLibrary::get(); });
  context.on_all_ranks("NCCL", [&] { refuse_shared_devices(members, devices); });
  const auto deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(context.options().deadline);
  ncclUniqueId id{};
  context.on_all_ranks(name, [&] {
    if (members.rank() == 0) id = NcclGroup::draw_id();
  });
  members.communicator().broadcast(&id, sizeof id, 0);
  context.on_all_ranks(
      name, [&] { group_ = std::make_unique<NcclGroup>(name, members.communicator(), id, deadline); });
  context.on_all_ranks("NCCL's memory", [&] {
    stream_ = make_stream();
    done_.allocate();
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, 1), "cudaMalloc");
    meeting_ = static_cast<std::byte*>(memory);
    check_cuda(cudaMemset(memory, 0, 1), "cudaMemset");
  });
  fingerprints_ = std::make_unique<Fingerprints>(context);
}

NcclPath::~NcclPath() = default;

void NcclPath::run(const DeviceCall& call) {
  queue(call);
  fingerprints_->add(call, *group_);
  if (!call.is_captured) mark(call.stream);
}

/// From now on the deadline of what is queued on the stream counts.
void NcclPath::mark(cudaStream_t stream) {
  if (done_.value() == called_) {
    const std::lock_guard lock(mutex_);
    progress_ = Clock::now();
  }
  done_.write(++called_, stream);
}

void NcclPath::queue(const DeviceCall& call) {
  switch (call.collective) {
    case Collective::all_reduce:
      return group_->all_reduce(call.input, call.output, call.count, call.type, call.op, call.stream);
    case Collective::reduce_scatter:
      return group_->reduce_scatter(call.input, call.output, call.count, call.type, call.op, call.stream);
    case Collective::all_gather:
      return group_->all_gather(call.input, call.output, call.count, call.type, call.stream);
    case Collective::broadcast:
      return group_->broadcast(call.input, call.output, call.count, call.type, call.root, call.stream);
    case Collective::reduce:
      return group_->reduce(call.input, call.output, call.count, call.type, call.op, call.root, call.stream);
    case Collective::barrier:
      return group_->all_reduce(meeting_, meeting_, 1, DataType::u8, ReduceOp::sum, call.stream);
  }
}

/// NCCL's kernels wait for ever: the deadline is looked after here.
std::optional<PathFailure> NcclPath::failure() {
  if (const auto found = group_->failure()) return PathFailure{*found, completed() + 1};
  if (const std::uint64_t call = fingerprints_->differs(); call != 0) {
    return PathFailure{{ErrorCode::mismatch,
                        "other ranks have called something else; all ranks must make the same calls, in the "
                        "same order. NCCL does not notice: results since then are wrong"},
                       call};
  }
  const std::uint64_t done = done_.value();
  const std::lock_guard lock(mutex_);
  if (done != seen_ || done == called_) {
    seen_ = done;
    progress_ = Clock::now();
  }
  if (Clock::now() - progress_ <= members_.context().options().deadline) return {};
  return PathFailure{
      {ErrorCode::timeout,
       fmt::format("no progress for {:g} s; some rank has not come to it, or does not get on (a longer "
                   "deadline: DDL_DEADLINE, in seconds)",
                   std::chrono::duration<double>(members_.context().options().deadline).count())},
      done + 1};
}

void NcclPath::abort() noexcept { group_->abort(); }

void NcclPath::settle() {
  fingerprints_->compare(*group_, stream_.get());
  mark(stream_.get());
  while (done_.value() != called_ && !failure()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void NcclPath::close(bool in_order) noexcept {
  if (!in_order) {
    abort();
    done_.abandon();
  }
  group_.reset();
  if (meeting_ != nullptr) cudaFree(std::exchange(meeting_, nullptr));
}

}  // namespace ddl::device
