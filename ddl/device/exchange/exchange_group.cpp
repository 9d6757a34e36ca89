#include "ddl/device/exchange/exchange_group.hpp"

#include "collectives/device/kernels.hpp"
#include "collectives/system/fail_agreed.hpp"

namespace ddl::device {
namespace {

using collectives::device::Address;
using collectives::device::Mailbox;
using collectives::device::Place;
using collectives::device::Status;
using collectives::device::window_shift;
using topology::Collective;

constexpr std::size_t most_windows = 1024;
constexpr std::size_t least_staging = std::size_t{64} << 10;
constexpr std::size_t line_bytes = 128;

std::string to_text(const CallCode& call) {
  const Collective collective = call.collective;
  if (collective == Collective::barrier) return "barrier";
  const bool is_rooted = topology::has_root(collective);
  return fmt::format("{} ({}{} {}{})", topology::to_string(collective),
                     reduces(collective) ? fmt::format("{} of ", to_string(call.op)) : "", call.count,
                     to_string(DataType{call.type}), is_rooted ? fmt::format(", root {}", call.root) : "");
}

/// Bytes that a block handles at a time, one pack per thread.
std::size_t bytes_at_a_time() {
  return as_index(collectives::device::exchange_block_threads() * collectives::device::pack_bytes);
}

template <typename T>
T seen(const T& written_by_device) {
  return __atomic_load_n(&written_by_device, __ATOMIC_ACQUIRE);
}

}  // namespace

ExchangeGroup::ExchangeGroup(GroupMembers& members, const DeviceTable& devices, std::size_t staging_bytes)
    : members_(members),
      rank_(members.rank()),
      ranks_(members.size()),
      staging_bytes_(staging_bytes / line_bytes * line_bytes) {
  members.context().on_all_ranks("devices", [&] {
    if (ranks_ > collectives::device::most_ranks) {
      fail_with(ErrorCode::unsupported,
                "DeviceCommunicator: there are {} ranks on a host, expected {} at most", ranks_,
                collectives::device::most_ranks);
    }
    if (staging_bytes_ < least_staging) {
      fail_with(ErrorCode::invalid_argument, "DeviceOptions::staging_bytes: found {}, expected {} or more",
                staging_bytes, least_staging);
    }
    status_ = make_pinned<Status>();
  });
  meeting_.emplace(members, sizeof(Mailbox) + most_windows * as_index(ranks_) * sizeof(std::byte*));
  choose_blocks(devices);
  if (!meeting_->in_one_process()) add_window(2 * staging_bytes_);
}

std::byte** ExchangeGroup::window_table() const {
  return reinterpret_cast<std::byte**>(meeting_->own() + sizeof(Mailbox));
}

std::byte* ExchangeGroup::allocate(std::size_t bytes) {
  add_window(std::max<std::size_t>(bytes, 1));
  return windows_.back().own();
}

std::int64_t ExchangeGroup::room_on_device() {
  int device = -1;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  int each = 0;
  const cudaError_t result = collectives::device::load_exchange_kernels(each);
  if (result == cudaErrorNoKernelImageForDevice || result == cudaErrorInvalidDeviceFunction) {
    cudaGetLastError();
    fail_with(ErrorCode::unsupported,
              "CUDA device {}, {}, has compute capability {}.{}, for which this library was not "
              "built; configure with -DCMAKE_CUDA_ARCHITECTURES={}{}",
              device, properties.name, properties.major, properties.minor, properties.major,
              properties.minor);
  }
  check_cuda(result, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return std::int64_t{each} * properties.multiProcessorCount;
}

/// The waiting kernels of all ranks and all communicators on a device must be resident together, and all
/// ranks must use the same number of blocks.
void ExchangeGroup::choose_blocks(const DeviceTable& devices) {
  const int device = devices.of(members_.context().rank()).number;
  const auto sharers =
      static_cast<std::int64_t>(devices.ranks_on_device_of(members_.context().rank()).size());
  std::int64_t room = 0;
  members_.context().on_all_ranks("kernels", [&] { room = room_on_device() / 2; });
  const std::int64_t taken = budget_.taken(device);
  std::int64_t least = std::min<std::int64_t>((room - taken) / sharers, collectives::device::most_blocks);
  members_.context().communicator().all_reduce(std::span(&least, 1), ReduceOp::min);
  blocks_ = static_cast<int>(least);
  members_.context().on_all_ranks("kernels", [&] {
    if (blocks_ > 0 && budget_.take(device, blocks_, room)) return;
    fail_with(ErrorCode::unsupported,
              "DeviceCommunicator: CUDA device {} has room for {} blocks of kernels that wait; other "
              "communicators of this process have taken {}, which leaves too few for the {} ranks "
              "here; end one of those, or put fewer ranks on a device",
              device, room, budget_.taken(device), sharers);
  });
}

void ExchangeGroup::add_window(std::size_t bytes) {
  if (windows_.size() == most_windows) {
    fail_agreed(ErrorCode::unsupported, "DeviceCommunicator: more than {} allocations", most_windows);
  }
  PeerMemory added(members_, bytes);
  members_.context().on_all_ranks("device memory", [&] {
    const auto at = windows_.size() * as_index(ranks_);
    upload(window_table() + at, added.all().data(), added.all().size() * sizeof(std::byte*));
  });
  windows_.push_back(std::move(added));
}

std::optional<Address> ExchangeGroup::registered(const void* data, std::size_t bytes) const {
  const auto place = reinterpret_cast<std::uintptr_t>(data);
  if (meeting_->in_one_process()) return place;
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    const auto begin = reinterpret_cast<std::uintptr_t>(windows_[i].own());
    if (place >= begin && place + bytes <= begin + windows_[i].bytes()) {
      return (static_cast<Address>(i + 1) << window_shift) + (place - begin);
    }
  }
  return {};
}

void ExchangeGroup::run(const DeviceCall& call) {
  if (!call.is_captured) ++calls_;
  if (!meeting_->in_one_process() && call.collective != Collective::barrier) return run_staged(call);
  const std::uint64_t stride = call.count * size_of(call.type);
  exchange(call, {call.count, true}, {reinterpret_cast<std::uintptr_t>(call.input), stride},
           {reinterpret_cast<std::uintptr_t>(call.output), stride});
}

/// Copies buffers that the peers have not mapped through the staging buffer, which they have. A rank does not
/// know which buffers its peers have registered, so all ranks cut the call into the same parts.
void ExchangeGroup::run_staged(const DeviceCall& call) {
  const std::size_t element = size_of(call.type);
  const auto [in_pieces, out_pieces, most] = staged_pieces(call, ranks_, staging_bytes_);
  const std::size_t whole = call.count * element;
  const auto input = registered(call.input, in_pieces * whole);
  const auto output = registered(call.output, out_pieces * whole);
  constexpr Address staging = Address{1} << window_shift;
  for (std::size_t first = 0; first < call.count; first += most) {
    const std::size_t elements = std::min(most, call.count - first);
    const std::size_t part = elements * element;
    Place from{staging, part};
    Place to{staging + staging_bytes_, part};
    std::byte* const copy_in = windows_[0].own();
    std::byte* const copy_out = windows_[0].own() + staging_bytes_;
    if (input) {
      from = {*input + first * element, whole};
    } else if (reads_input(call, rank_)) {
      copy_pieces(copy_in, part, call.input + first * element, whole, part, in_pieces,
                  cudaMemcpyDeviceToDevice, call.stream);
    }
    if (output) to = {*output + first * element, whole};
    exchange(call, {elements, first + elements == call.count}, from, to);
    if (!output && writes_output(call, rank_)) {
      copy_pieces(call.output + first * element, whole, copy_out, part, part, out_pieces,
                  cudaMemcpyDeviceToDevice, call.stream);
    }
  }
}

std::size_t ExchangeGroup::most_whole_bytes() const noexcept { return as_index(blocks_) * bytes_at_a_time(); }

void ExchangeGroup::exchange(const DeviceCall& call, Part part, const Place& input, const Place& output) {
  std::size_t elements = part.elements;
  const bool is_reduction = reduces(call.collective);
  DataType type = call.type;
  if (!is_reduction) {  // only the size matters for a copy
    type = size_of(call.type) >= sizeof(std::int32_t) ? DataType::i32 : DataType::u8;
    elements = elements * size_of(call.type) / size_of(type);
  }
  const std::size_t bytes = elements * size_of(type);
  collectives::device::Exchange e;
  for (int peer = 0; peer < ranks_; ++peer) {
    e.mailboxes[peer] = reinterpret_cast<Mailbox*>(meeting_->all()[as_index(peer)]);
  }
  e.status = status_.get();
  e.rank = rank_;
  e.ranks = ranks_;
  e.part_of = call.is_captured ? 0 : calls_;
  e.is_last = part.is_last;
  e.timeout_ns = static_cast<std::uint64_t>(members_.deadline().count());
  e.call = call.called();
  e.call.cut = static_cast<std::uint32_t>(mixed(0, part.elements, call.plan));
  e.input = input;
  e.output = output;
  e.windows = window_table();
  e.divisor = is_reduction && call.op == ReduceOp::avg ? ranks_ : 1;
  const bool whole = call.collective == Collective::all_reduce &&
                     call.steps->dimensions.front().algorithm == topology::Algorithm::one_shot &&
                     bytes <= most_whole_bytes();
  whole ? collectives::device::set_whole(e, elements)
        : collectives::device::set_range(e, call.collective, elements, size_of(type), call.root);
  // Enough blocks for the largest range of any rank, so the number is the same on all ranks.
  const bool is_sliced =
      !whole && call.collective != Collective::reduce_scatter && call.collective != Collective::all_gather;
  const std::size_t share = is_sliced ? bytes / as_index(ranks_) + line_bytes : bytes;
  const auto needed =
      static_cast<int>(std::min((share + bytes_at_a_time() - 1) / bytes_at_a_time(), as_index(blocks_)));
  collectives::device::launch_exchange(e, type, call.op, whole, std::max(needed, 1), call.stream);
}

void ExchangeGroup::abort() noexcept { __atomic_store_n(&status_->abort, 1U, __ATOMIC_RELEASE); }

std::uint64_t ExchangeGroup::completed() { return seen(status_->finished); }

std::optional<GroupFailure> ExchangeGroup::failure() {
  const Status& now = *status_;
  const auto failure_of = [&](std::uint64_t found, ErrorCode code, const std::string& text) {
    GroupFailure failure{{code, text}, found - 1};
    if (failure.call == 0) failure.captured = to_text(now.own);
    return failure;
  };
  for (int peer = 0; peer < ranks_; ++peer) {
    const std::uint64_t found = seen(now.other[peer]);
    if (found == 0) continue;
    CallCode other = now.calls[peer];
    other.cut = now.own.cut;
    const int rank = members_.ranks()[as_index(peer)];
    return failure_of(
        found, ErrorCode::mismatch,
        other == now.own
            ? fmt::format("rank {} cuts the call into other parts, or has another plan for it", rank)
            : fmt::format("rank {} calls {} instead; all ranks must make the same calls, in the same order",
                          rank, to_text(other)));
  }
  std::vector<int> late;
  std::uint64_t found = 0;
  for (int peer = 0; peer < ranks_; ++peer) {
    const std::uint64_t missed = seen(now.late[peer]);
    if (missed == 0) continue;
    found = missed;
    late.push_back(members_.ranks()[as_index(peer)]);
  }
  if (late.empty()) return {};
  return failure_of(
      found, ErrorCode::timeout,
      fmt::format(
          "waited {:g} s for ranks {}, which have not arrived, or have not finished the call (a longer "
          "deadline: DDL_DEADLINE, in seconds)",
          members_.deadline_seconds(), fmt::join(late, ", ")));
}

void ExchangeGroup::close(bool in_order) noexcept {
  if (in_order) {
    try {
      members_.communicator().barrier();
      for (PeerMemory& window : windows_) window.unmap();
      meeting_->unmap();
      members_.communicator().barrier();
      return;
    } catch (const std::exception&) {  // continues as after a failure
    }
  }
  // Peers may still use this rank's memory, and unmapping theirs could block behind a waiting kernel.
  for (PeerMemory& window : windows_) window.abandon();
  meeting_->abandon();
  status_.release();
}

}  // namespace ddl::device
