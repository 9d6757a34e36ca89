#include "ddl/device/nccl/nccl_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <thread>
#include <utility>

#include "ddl/cuda_check.hpp"
#include "ddl/topology/planner.hpp"

namespace ddl::device {
namespace {

using topology::Collective;
using Clock = std::chrono::steady_clock;

/// Below that, three collectives for each chunk are not worth asking a planner.
constexpr std::size_t least_by_dimension = std::size_t{1} << 20;
constexpr std::size_t chunk_bytes = std::size_t{8} << 20;
constexpr std::size_t most_chunks = 8;

/// NCCL refuses ranks that share a device, with a message that says little, unless it takes them for ranks on
/// several hosts.
void refuse_shared_devices(const DeviceTable& devices) {
  if (std::getenv("NCCL_HOSTID") != nullptr) return;
  for (int rank = 0; rank < devices.size(); ++rank) {
    if (devices.ranks_on_device_of(rank) == 1) continue;
    throw Error(ErrorCode::unsupported,
                fmt::format("NCCL cannot be used: rank {} shares its device with another one", rank))
        .as_agreed();
  }
}

bool is_even(const topology::RankMap& map) {
  for (int host = 1; host < map.hosts(); ++host) {
    if (map.ranks_of(host).size() != map.ranks_of(0).size()) return false;
  }
  return map.hosts() > 1 && map.ranks_of(0).size() > 1;
}

}  // namespace

NcclPath::NcclPath(Context& context, const DeviceTable& devices,
                   std::shared_ptr<const topology::Topology> topology)
    : context_(context), topology_(std::move(topology)) {
  context.on_all_ranks("NCCL", [&] { NcclLibrary::get(); });
  refuse_shared_devices(devices);
  const auto deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(context.options().deadline);
  const auto group = [&](const std::string& name, Communicator& members) {
    ncclUniqueId id{};
    context.on_all_ranks(name, [&] {
      if (members.rank() == 0) id = NcclGroup::draw_id();
    });
    members.broadcast(&id, sizeof id, 0);
    std::unique_ptr<NcclGroup> made;
    context.on_all_ranks(name, [&] { made = std::make_unique<NcclGroup>(name, members, id, deadline); });
    return made;
  };
  Communicator& all = context.communicator();
  all_ = group("NCCL over all ranks", all);
  if (is_even(all.rank_map())) {
    Communicator inner = all.split(all.rank_map().host_of(context.rank()));
    Communicator outer = all.split(context.local_rank());
    inner_ = group("NCCL inside a host", inner);
    outer_ = group("NCCL between hosts", outer);
  }
  context.on_all_ranks("NCCL's streams", [&] {
    for (Stream* stream : {&inner_stream_, &outer_stream_}) *stream = make_stream();
    joint_ = make_event();
    done_.allocate();
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, 1), "cudaMalloc");
    meeting_ = static_cast<std::byte*>(memory);
    check_cuda(cudaMemset(memory, 0, 1), "cudaMemset");
  });
  fingerprints_ = std::make_unique<Fingerprints>(context);
}

NcclPath::~NcclPath() = default;

/// What is queued on `then` from now on waits for what is queued on `first`.
void NcclPath::join(cudaStream_t first, cudaStream_t then) {
  if (first == then) return;
  check_cuda(cudaEventRecord(joint_.get(), first), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(then, joint_.get(), 0), "cudaStreamWaitEvent");
}

void NcclPath::run(const DeviceCall& call) {
  const bool by_dimension = goes_by_dimension(call);
  by_dimension ? run_by_dimension(call) : run_on_all(call);
  fingerprints_->add(call, by_dimension, *all_);
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

void NcclPath::run_on_all(const DeviceCall& call) {
  switch (call.collective) {
    case Collective::all_reduce:
      return all_->all_reduce(call.input, call.output, call.count, call.type, call.op, call.stream);
    case Collective::reduce_scatter:
      return all_->reduce_scatter(call.input, call.output, call.count, call.type, call.op, call.stream);
    case Collective::all_gather:
      return all_->all_gather(call.input, call.output, call.count, call.type, call.stream);
    case Collective::broadcast:
      return all_->broadcast(call.input, call.output, call.count, call.type, call.root, call.stream);
    case Collective::reduce:
      return all_->reduce(call.input, call.output, call.count, call.type, call.op, call.root, call.stream);
    case Collective::barrier:
      return all_->all_reduce(meeting_, meeting_, 1, DataType::u8, ReduceOp::sum, call.stream);
  }
}

/// As DDL_OPTIONS's -mode says (n, b); else by the planner's predictions for the job's topology. The same on
/// all ranks.
bool NcclPath::goes_by_dimension(const DeviceCall& call) {
  if (call.collective != Collective::all_reduce || !inner_) return false;
  const bool is_whole = call.type == DataType::u8 || call.type == DataType::i32 || call.type == DataType::i64;
  if (call.op == ReduceOp::avg && is_whole) return false;  // would be cut off twice
  const std::size_t bytes = call.count * size_of(call.type);
  const topology::Mode mode = context_.options().mode;
  if (mode == topology::Mode::nccl || mode == topology::Mode::nccl_per_dimension) {
    return mode == topology::Mode::nccl_per_dimension;
  }
  if (bytes < least_by_dimension) return false;
  const auto size_class = static_cast<std::size_t>(std::bit_width(bytes));
  if (by_dimension_.size() <= size_class) by_dimension_.resize(size_class + 1);
  std::optional<bool>& known = by_dimension_[size_class];
  if (!known) {
    topology::Placement placement(static_cast<std::size_t>(context_.size()));
    for (std::size_t rank = 0; rank < placement.size(); ++rank) placement[rank] = static_cast<int>(rank);
    topology::Planner planner(*topology_, placement);
    const auto time = [&](topology::Mode of) {
      return planner.choose({.bytes = std::bit_floor(bytes), .mode = of}).predicted_us;
    };
    known = time(topology::Mode::nccl_per_dimension) < time(topology::Mode::nccl);
  }
  return *known;
}

void NcclPath::run_by_dimension(const DeviceCall& call) {
  const std::size_t element = size_of(call.type);
  const std::size_t wanted = std::clamp<std::size_t>(call.count * element / chunk_bytes, 1, most_chunks);
  const auto inner = static_cast<std::size_t>(inner_->size());
  const ScatterGather cut = scatter_gather(call.count, inner, wanted);
  const auto own = [&](const ScatterGatherChunk& chunk) {
    return call.output + (chunk.first + static_cast<std::size_t>(inner_->rank()) * chunk.part) * element;
  };
  const auto gather = [&](const ScatterGatherChunk& chunk) {
    join(outer_stream_.get(), inner_stream_.get());
    inner_->all_gather(own(chunk), call.output + chunk.first * element, chunk.part, call.type,
                       inner_stream_.get());
  };
  join(call.stream, inner_stream_.get());
  for (std::size_t i = 0; i < cut.chunks.size(); ++i) {
    const ScatterGatherChunk& chunk = cut.chunks[i];
    inner_->reduce_scatter(call.input + chunk.first * element, own(chunk), chunk.part, call.type, call.op,
                           inner_stream_.get());
    // The chunk before this one is gathered behind this one's scattering: by then it has been between the
    // hosts.
    if (i > 0) gather(cut.chunks[i - 1]);
    join(inner_stream_.get(), outer_stream_.get());
    outer_->all_reduce(own(chunk), own(chunk), chunk.part, call.type, call.op, outer_stream_.get());
  }
  if (!cut.chunks.empty()) gather(cut.chunks.back());
  join(inner_stream_.get(), call.stream);
  if (cut.rest > 0) {
    const std::size_t at = (call.count - cut.rest) * element;
    all_->all_reduce(call.input + at, call.output + at, cut.rest, call.type, call.op, call.stream);
  }
}

/// NCCL's kernels wait for ever: the deadline is looked after here.
std::optional<PathFailure> NcclPath::failure() {
  for (const auto* group : {&all_, &inner_, &outer_}) {
    if (*group == nullptr) continue;
    if (const auto found = (*group)->failure()) return PathFailure{*found, completed() + 1};
  }
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
  if (Clock::now() - progress_ <= context_.options().deadline) return {};
  return PathFailure{
      {ErrorCode::timeout,
       fmt::format("no progress for {:g} s; some rank has not come to it, or does not get on (a longer "
                   "deadline: DDL_DEADLINE, in seconds)",
                   std::chrono::duration<double>(context_.options().deadline).count())},
      done + 1};
}

void NcclPath::abort() noexcept {
  for (const auto* group : {&all_, &inner_, &outer_}) {
    if (*group) (*group)->abort();
  }
}

void NcclPath::settle() {
  fingerprints_->compare(*all_, inner_stream_.get());
  mark(inner_stream_.get());
  while (done_.value() != called_ && !failure()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void NcclPath::close(bool in_order) noexcept {
  if (!in_order) {
    abort();
    done_.abandon();
  }
  outer_.reset();
  inner_.reset();
  all_.reset();
  if (meeting_ != nullptr) cudaFree(std::exchange(meeting_, nullptr));
}

}  // namespace ddl::device
