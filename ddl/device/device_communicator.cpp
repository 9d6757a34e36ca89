#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/device/exchange_kernels.hpp"
#include "collectives/device/exchange_range.hpp"
#include "ddl/context_state.hpp"
#include "ddl/cuda_check.hpp"
#include "ddl/device.hpp"
#include "ddl/device/peer_memory.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl {
namespace {

using collectives::device::Address;
using collectives::device::CallCode;
using collectives::device::Exchange;
using collectives::device::Mailbox;
using collectives::device::Place;
using collectives::device::Status;
using collectives::device::window_shift;
using device::PeerMemory;
using topology::Collective;

constexpr std::size_t most_windows = 1024;
constexpr std::size_t remembered_calls = 256;
constexpr std::size_t least_staging = std::size_t{64} << 10;
constexpr std::size_t line_bytes = 128;

/// Up to here every rank reduces everything: it saves nothing but reads n - 1 times as much.
std::size_t most_whole_bytes(int ranks) { return (std::size_t{256} << 10) / static_cast<std::size_t>(ranks); }

std::string to_text(const CallCode& call) {
  const auto collective = static_cast<Collective>(call.collective);
  if (collective == Collective::barrier) return "barrier on devices";
  const bool reduces = collective != Collective::broadcast && collective != Collective::all_gather;
  const bool is_rooted = collective == Collective::broadcast || collective == Collective::reduce;
  return fmt::format("{} on devices ({}{} {}{})", topology::to_string(collective),
                     reduces ? fmt::format("{} of ", to_string(static_cast<ReduceOp>(call.op))) : "",
                     call.count, to_string(static_cast<DataType>(call.type)),
                     is_rooted ? fmt::format(", root {}", call.root) : "");
}

/// Memory of the host that the device reaches; zeros.
struct MappedStatus {
  MappedStatus() {
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, sizeof(Status), cudaHostAllocMapped | cudaHostAllocPortable),
               "cudaHostAlloc");
    host = new (memory) Status();
    void* seen = nullptr;
    check_cuda(cudaHostGetDevicePointer(&seen, memory, 0), "cudaHostGetDevicePointer");
    device = static_cast<Status*>(seen);
  }
  MappedStatus(const MappedStatus&) = delete;
  MappedStatus& operator=(const MappedStatus&) = delete;
  ~MappedStatus() {
    if (!is_abandoned) cudaFreeHost(host);
  }

  Status* host = nullptr;
  Status* device = nullptr;
  bool is_abandoned = false;
};

template <typename T>
T seen(const T& written_by_device) {
  return __atomic_load_n(&written_by_device, __ATOMIC_ACQUIRE);
}

/// A call of a user's.
struct DeviceCall {
  Collective collective;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  DeviceStream stream = nullptr;
};

}  // namespace

struct DeviceCommunicator::State {
  State(Context& context_, const DeviceOptions& options);
  ~State();

  Context& context;
  const int rank;
  const int ranks;
  int device = -1;
  std::string name;
  int blocks = 0;
  std::size_t staging_bytes;
  std::optional<MappedStatus> status;
  std::optional<PeerMemory> meeting;  // mailboxes, and then pointers to windows
  std::vector<PeerMemory> windows;    // the first is for staging, unless all ranks are in one process
  std::uint32_t number = 0;
  std::array<CallCode, remembered_calls> calls{};
  std::vector<DeviceStream> streams;
  std::optional<Error> failure;

  void open();
  void choose_blocks();
  void add_window(std::size_t bytes);
  [[nodiscard]] std::byte** window_table() const {
    return reinterpret_cast<std::byte**>(meeting->own() + sizeof(Mailbox));
  }

  void run(const DeviceCall& call);
  void require_valid(const DeviceCall& call) const;
  void run_staged(const DeviceCall& call);
  void exchange(const DeviceCall& call, std::size_t elements, const Place& input, const Place& output);
  [[nodiscard]] std::optional<Address> registered(const void* data, std::size_t bytes) const;

  void look();
  void fail(Error error);
  void finish(DeviceStream stream);
};

DeviceCommunicator::State::State(Context& context_, const DeviceOptions& options)
    : context(context_), rank(context_.rank()), ranks(context_.size()), staging_bytes(options.staging_bytes) {
  context.on_all_ranks("devices", [&] {
    if (context.hosts() > 1) {
      throw Error(
          ErrorCode::unsupported,
          fmt::format("DeviceCommunicator: the ranks are on {} hosts, expected one", context.hosts()));
    }
    if (ranks > collectives::device::most_ranks) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("DeviceCommunicator: there are {} ranks, expected {} at most", ranks,
                              collectives::device::most_ranks));
    }
    if (staging_bytes < least_staging) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("DeviceOptions::staging_bytes: found {}, expected {} or more", staging_bytes,
                              least_staging));
    }
    const int devices = cuda_devices();
    if (options.device >= devices || options.device < -1) {
      throw Error(
          ErrorCode::unsupported,
          fmt::format("CUDA device {} does not exist: {} found, numbered from 0", options.device, devices));
    }
    device = options.device >= 0 ? options.device : context.local_rank() % devices;
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    name = properties.name;
    status.emplace();
  });
  meeting.emplace(context,
                  sizeof(Mailbox) + most_windows * static_cast<std::size_t>(ranks) * sizeof(std::byte*));
  choose_blocks();
  staging_bytes = staging_bytes / line_bytes * line_bytes;
  if (!meeting->in_one_process()) add_window(2 * staging_bytes);
}

/// The kernels of all ranks of a device must fit on it together, and all ranks must have as many blocks.
void DeviceCommunicator::State::choose_blocks() {
  struct Uuid {
    std::array<char, 16> bytes{};
  };
  Uuid own;
  std::int64_t room = 0;
  context.on_all_ranks("kernels", [&] {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    std::memcpy(own.bytes.data(), properties.uuid.bytes, own.bytes.size());
    int each = 0;
    const cudaError_t result = collectives::device::load_exchange_kernels(each);
    if (result == cudaErrorNoKernelImageForDevice || result == cudaErrorInvalidDeviceFunction) {
      cudaGetLastError();
      throw Error(
          ErrorCode::unsupported,
          fmt::format("CUDA device {}, {}, has compute capability {}.{}, for which this library was not "
                      "built; configure with -DCMAKE_CUDA_ARCHITECTURES={}{}",
                      device, name, properties.major, properties.minor, properties.major, properties.minor));
    }
    check_cuda(result, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    room = std::int64_t{each} * properties.multiProcessorCount;
  });
  std::vector<Uuid> all(static_cast<std::size_t>(ranks));
  context.communicator().all_gather(&own, all.data(), sizeof own, DataType::u8);
  const auto sharing = std::ranges::count_if(all, [&](const Uuid& uuid) { return uuid.bytes == own.bytes; });
  std::int64_t least = room / sharing;
  context.communicator().all_reduce(std::span(&least, 1), ReduceOp::min);
  blocks = static_cast<int>(std::min<std::int64_t>(least, collectives::device::most_blocks));
  if (blocks == 0) {
    throw Error(ErrorCode::unsupported, "DeviceCommunicator: more ranks share a device than it has room for")
        .as_agreed();
  }
}

void DeviceCommunicator::State::add_window(std::size_t bytes) {
  if (windows.size() == most_windows) {
    throw Error(ErrorCode::unsupported,
                fmt::format("DeviceCommunicator: more than {} allocations", most_windows))
        .as_agreed();
  }
  PeerMemory added(context, bytes);
  context.on_all_ranks("device memory", [&] {
    const auto at = windows.size() * static_cast<std::size_t>(ranks);
    check_cuda(cudaMemcpy(window_table() + at, added.all().data(), added.all().size() * sizeof(std::byte*),
                          cudaMemcpyHostToDevice),
               "cudaMemcpy");
  });
  windows.push_back(std::move(added));
}

std::optional<Address> DeviceCommunicator::State::registered(const void* data, std::size_t bytes) const {
  const auto place = reinterpret_cast<std::uintptr_t>(data);
  if (meeting->in_one_process()) return place;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const auto begin = reinterpret_cast<std::uintptr_t>(windows[i].own());
    if (place >= begin && place + bytes <= begin + windows[i].bytes()) {
      return (static_cast<Address>(i + 1) << window_shift) + (place - begin);
    }
  }
  return {};
}

void DeviceCommunicator::State::require_valid(const DeviceCall& call) const {
  const auto refuse = [&](const std::string& text) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} on devices: {}", topology::to_string(call.collective), text));
  };
  if (call.root < 0 || call.root >= ranks) {
    refuse(fmt::format("found root {}, expected 0 to {}", call.root, ranks - 1));
  }
  const bool reads = call.collective != Collective::broadcast || rank == call.root;
  const bool writes = call.collective != Collective::reduce || rank == call.root;
  const auto check = [&](const void* data, const char* what) {
    if (data == nullptr && call.count > 0) refuse(fmt::format("the {} is null", what));
    if (reinterpret_cast<std::uintptr_t>(data) % size_of(call.type) != 0) {
      refuse(fmt::format("the {} begins at {}, which is no multiple of {} bytes", what, data,
                         size_of(call.type)));
    }
  };
  if (reads) check(call.input, "input");
  if (writes) check(call.output, "output");
}

void DeviceCommunicator::State::run(const DeviceCall& call) {
  look();
  require_valid(call);
  if (call.count == 0 && call.collective != Collective::barrier) return;
  if (!meeting->in_one_process() && call.collective != Collective::barrier) return run_staged(call);
  const std::uint64_t stride = call.count * size_of(call.type);
  exchange(call, call.count, {reinterpret_cast<std::uintptr_t>(call.input), stride},
           {reinterpret_cast<std::uintptr_t>(call.output), stride});
}

/// What some rank's peers have not mapped goes through memory that they have. Nobody knows of the others'
/// buffers: all cut the call into the same parts.
void DeviceCommunicator::State::run_staged(const DeviceCall& call) {
  const std::size_t element = size_of(call.type);
  const std::size_t in_pieces =
      call.collective == Collective::reduce_scatter ? static_cast<std::size_t>(ranks) : 1;
  const std::size_t out_pieces =
      call.collective == Collective::all_gather ? static_cast<std::size_t>(ranks) : 1;
  const std::size_t whole = call.count * element;
  const std::size_t line = line_bytes / element;
  const std::size_t most = staging_bytes / (std::max(in_pieces, out_pieces) * element) / line * line;
  const bool reads = call.collective != Collective::broadcast || rank == call.root;
  const bool writes = call.collective != Collective::reduce || rank == call.root;
  const auto input = registered(call.input, in_pieces * whole);
  const auto output = registered(call.output, out_pieces * whole);
  constexpr Address staging = Address{1} << window_shift;
  for (std::size_t first = 0; first < call.count; first += most) {
    const std::size_t elements = std::min(most, call.count - first);
    const std::size_t part = elements * element;
    Place from{staging, part};
    Place to{staging + staging_bytes, part};
    std::byte* const copy_in = windows[0].own();
    std::byte* const copy_out = windows[0].own() + staging_bytes;
    if (input) {
      from = {*input + first * element, whole};
    } else if (reads) {
      check_cuda(cudaMemcpy2DAsync(copy_in, part, call.input + first * element, whole, part, in_pieces,
                                   cudaMemcpyDeviceToDevice, call.stream),
                 "cudaMemcpy2DAsync");
    }
    if (output) to = {*output + first * element, whole};
    exchange(call, elements, from, to);
    if (!output && writes) {
      check_cuda(cudaMemcpy2DAsync(call.output + first * element, whole, copy_out, part, part, out_pieces,
                                   cudaMemcpyDeviceToDevice, call.stream),
                 "cudaMemcpy2DAsync");
    }
  }
}

void DeviceCommunicator::State::exchange(const DeviceCall& call, std::size_t elements, const Place& input,
                                         const Place& output) {
  const bool reduces = call.collective != Collective::broadcast && call.collective != Collective::all_gather;
  DataType type = call.type;
  if (!reduces) {  // copies are of bits
    type = size_of(call.type) >= sizeof(std::int32_t) ? DataType::i32 : DataType::u8;
    elements = elements * size_of(call.type) / size_of(type);
  }
  const std::size_t bytes = elements * size_of(type);
  Exchange e;
  for (int peer = 0; peer < ranks; ++peer) {
    e.mailboxes[peer] = reinterpret_cast<Mailbox*>(meeting->all()[static_cast<std::size_t>(peer)]);
  }
  e.status = status->device;
  e.rank = rank;
  e.ranks = ranks;
  e.number = ++number;
  e.timeout_ns = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(context.options().deadline).count());
  e.call = {call.count, static_cast<std::uint8_t>(call.collective), static_cast<std::uint8_t>(call.type),
            static_cast<std::uint8_t>(reduces ? call.op : ReduceOp::sum),
            static_cast<std::uint8_t>(call.root)};
  e.input = input;
  e.output = output;
  e.windows = window_table();
  e.divisor = reduces && call.op == ReduceOp::avg ? ranks : 1;
  const std::size_t at_a_time = static_cast<std::size_t>(collectives::device::block_threads) *
                                static_cast<std::size_t>(collectives::device::pack_bytes);
  const bool whole = call.collective == Collective::all_reduce && bytes <= most_whole_bytes(ranks) &&
                     bytes <= static_cast<std::size_t>(blocks) * at_a_time;
  whole ? collectives::device::set_whole(e, elements)
        : collectives::device::set_range(e, call.collective, elements, size_of(type), call.root);
  // As many as the largest range of any rank needs: the same on all.
  const bool is_sliced =
      !whole && call.collective != Collective::reduce_scatter && call.collective != Collective::all_gather;
  const std::size_t share = is_sliced ? bytes / static_cast<std::size_t>(ranks) + line_bytes : bytes;
  const auto needed = static_cast<int>(
      std::min<std::size_t>((share + at_a_time - 1) / at_a_time, static_cast<std::size_t>(blocks)));
  calls[number % remembered_calls] = e.call;
  if (std::ranges::find(streams, call.stream) == streams.end()) streams.push_back(call.stream);
  check_cuda(collectives::device::launch_exchange(e, type, call.op, whole, std::max(needed, 1), call.stream),
             "launch of an exchange");
}

void DeviceCommunicator::State::fail(Error error) {
  __atomic_store_n(&status->host->abort, 1U, __ATOMIC_RELEASE);
  failure = error;
  announce_failure(context, error.what());
  throw error;
}

/// Throws what has failed so far.
void DeviceCommunicator::State::look() {
  if (failure) throw *failure;
  const Status& now = *status->host;
  for (int peer = 0; peer < ranks; ++peer) {
    if (const std::uint32_t call = seen(now.other[peer]); call != 0) {
      fail({ErrorCode::mismatch,
            fmt::format("rank {} calls {}, rank {} calls {}: all ranks must make the same calls", rank,
                        to_text(calls[call % remembered_calls]), peer, to_text(now.calls[peer]))});
    }
  }
  collectives::Watch* const watch = watch_of(context);
  if (watch != nullptr && watch->failed()) {
    fail({ErrorCode::peer_failed, "collectives on devices end: " + watch->failure().text});
  }
  std::string late;
  std::uint32_t call = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    const std::uint32_t missed = seen(now.late[peer]);
    if (missed == 0) continue;
    call = missed;
    late += fmt::format("{}{}", late.empty() ? "" : ", ", peer);
  }
  if (!late.empty()) {
    fail({ErrorCode::timeout,
          fmt::format(
              "{} on rank {}: waited {:g} s for ranks {}, which have not come to it, or have not finished it "
              "(a longer deadline: DDL_DEADLINE, in seconds)",
              to_text(calls[call % remembered_calls]), rank,
              std::chrono::duration<double>(context.options().deadline).count(), late)});
  }
}

void DeviceCommunicator::State::finish(DeviceStream stream) {
  constexpr int looks_before_naps = 1000;
  std::optional<Error> found;
  for (int looks = 0;; ++looks) {
    const cudaError_t result = cudaStreamQuery(stream);
    if (result == cudaSuccess) break;
    if (result != cudaErrorNotReady) check_cuda(result, "cudaStreamQuery");
    if (!found) {
      try {
        look();
      } catch (const Error& error) {
        found = error;  // kernels that wait end now
      }
    }
    if (looks < looks_before_naps) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  if (found) throw *found;
  look();
}

DeviceCommunicator::State::~State() {
  if (!meeting) return;
  try {
    for (DeviceStream stream : streams) finish(stream);
    context.communicator().barrier();
    for (PeerMemory& window : windows) window.unmap();
    meeting->unmap();
    context.communicator().barrier();
  } catch (const std::exception&) {
    // Others may still use what is here, and what they use is not to be unmapped while a kernel waits.
    for (PeerMemory& window : windows) window.abandon();
    meeting->abandon();
    status->is_abandoned = true;
  }
}

DeviceCommunicator::DeviceCommunicator(Context& context, const DeviceOptions& options)
    : state_(std::make_unique<State>(context, options)) {}
DeviceCommunicator::~DeviceCommunicator() = default;

int DeviceCommunicator::rank() const noexcept { return state_->rank; }
int DeviceCommunicator::size() const noexcept { return state_->ranks; }
int DeviceCommunicator::device() const noexcept { return state_->device; }
const std::string& DeviceCommunicator::device_name() const noexcept { return state_->name; }
int DeviceCommunicator::blocks() const noexcept { return state_->blocks; }
Context& DeviceCommunicator::context() const noexcept { return state_->context; }
bool DeviceCommunicator::reaches(const void* data, std::size_t bytes) const {
  return state_->registered(data, bytes).has_value();
}

DeviceMemory DeviceCommunicator::allocate(std::size_t bytes) {
  state_->look();
  state_->add_window(std::max<std::size_t>(bytes, 1));
  return {state_->windows.back().own(), bytes};
}

void DeviceCommunicator::all_reduce(const void* input, void* output, std::size_t count, DataType type,
                                    ReduceOp op, DeviceStream stream) {
  state_->run({Collective::all_reduce, static_cast<const std::byte*>(input), static_cast<std::byte*>(output),
               count, type, op, 0, stream});
}
void DeviceCommunicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                        ReduceOp op, DeviceStream stream) {
  state_->run({Collective::reduce_scatter, static_cast<const std::byte*>(input),
               static_cast<std::byte*>(output), count, type, op, 0, stream});
}
void DeviceCommunicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                                    DeviceStream stream) {
  state_->run({Collective::all_gather, static_cast<const std::byte*>(input), static_cast<std::byte*>(output),
               count, type, ReduceOp::sum, 0, stream});
}
void DeviceCommunicator::broadcast(const void* input, void* output, std::size_t count, DataType type,
                                   int root, DeviceStream stream) {
  state_->run({Collective::broadcast, static_cast<const std::byte*>(input), static_cast<std::byte*>(output),
               count, type, ReduceOp::sum, root, stream});
}
void DeviceCommunicator::reduce(const void* input, void* output, std::size_t count, DataType type,
                                ReduceOp op, int root, DeviceStream stream) {
  state_->run({Collective::reduce, static_cast<const std::byte*>(input), static_cast<std::byte*>(output),
               count, type, op, root, stream});
}
void DeviceCommunicator::barrier(DeviceStream stream) {
  state_->run({.collective = Collective::barrier, .stream = stream});
}

void DeviceCommunicator::check() { state_->look(); }
void DeviceCommunicator::wait(DeviceStream stream) { state_->finish(stream); }
void DeviceCommunicator::release(DeviceStream stream) {
  std::erase(state_->streams, stream);
  state_->finish(stream);
}

}  // namespace ddl
