#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/device/cuda_check.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/device.hpp"
#include "ddl/device/call_log.hpp"
#include "ddl/device/device_executor.hpp"
#include "ddl/device/device_timeline.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/log.hpp"
#include "topology/refuse.hpp"

namespace ddl {

using collectives::CallId;
using device::DeviceCall;
using topology::Collective;

namespace {

/// Yields during the first polls of a wait, then sleeps between polls.
void rest(int looks) {
  constexpr int looks_before_naps = 1000;
  looks < looks_before_naps ? std::this_thread::yield()
                            : std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

struct DeviceCommunicator::State {
  State(const Context& context_, const DeviceOptions& options)
      : context(context_), rank(context_.rank()), ranks(context_.size()), devices(context_, options.device) {
    for (const std::string& shortcoming : devices.shortcomings()) note_shortcoming(context, shortcoming);
    if (options.bind && devices.is_one_process_each()) {
      const device::DeviceEntry& own = devices.of(rank);
      context.log().info(fmt::format("CUDA device {} ({}, {}): {}", own.number, own.name.data(),
                                     own.pci_address.data(), device::bind_near(own.pci_address.data())));
    }
    warn_of_queues();
    context.on_all_ranks("the device's clock", [&] { timeline.emplace(context.timeline()); });
    executor.emplace(context, devices, options, *timeline);
    log.emplace(engine_of(context).recorder(), *executor);
    guard = std::jthread([this](const std::stop_token& stop) { look_after(stop); });
  }
  ~State() {
    bool in_order = true;
    const bool was_told = is_told;
    if (std::uncaught_exceptions() > exceptions_at_start) {
      announce_failure(context, "an exception has left the scope of a DeviceCommunicator");
    }
    try {
      for (DeviceStream stream : streams) finish(stream);
      executor->settle();
      look();
    } catch (const std::exception& error) {
      in_order = false;
      if (!was_told && std::uncaught_exceptions() == exceptions_at_start) context.log().error(error.what());
    }
    guard = {};
    if (in_order) timeline->collect();
    if (const std::uint64_t left_out = timeline->left_out(); left_out > 0) {
      context.log().warning(
          fmt::format("the timeline lacks {} spans on rank {}'s device: more were queued at a time "
                      "than it has events for",
                      left_out, rank));
    }
    log.reset();
    executor->close(in_order);
  }

  Context context;
  const int exceptions_at_start = std::uncaught_exceptions();
  const int rank;
  const int ranks;
  const device::DeviceTable devices;
  std::optional<device::DeviceTimeline> timeline;
  std::optional<device::DeviceExecutor> executor;
  std::vector<DeviceStream> streams;
  std::optional<device::CallLog> log;

  std::mutex mutex;  // protects `failure`
  std::optional<Error> failure;
  std::atomic<bool> has_failed = false;
  bool is_told = false;  // the failure has been thrown to the user
  std::jthread guard;

  void run(Collective collective, const void* input, void* output, std::size_t count, DataType type,
           ReduceOp op, int root, DeviceStream stream, std::optional<DeviceWire> wire = {}) {
    if (has_failed) look();
    DeviceCall call{collective,
                    static_cast<const std::byte*>(input),
                    static_cast<std::byte*>(output),
                    count,
                    type,
                    op,
                    root,
                    stream};
    if (wire) {
      call.wire = wire->type;
      call.residual = wire->residual;
    }
    require_valid(call);
    if (count == 0 && collective != Collective::barrier) return;
    call.is_captured = device::is_capturing(stream);
    call.is_captured ? run_captured(call) : run_logged(call);
    if (has_failed) look();
    if (!call.is_captured && context.options().device_sync > 0) finish(stream);
  }
  void run_logged(const DeviceCall& call) {
    if (std::ranges::find(streams, call.stream) == streams.end()) streams.push_back(call.stream);
    wait_for_room();
    const char* const name = topology::to_string(call.collective).data();
    const std::size_t bytes = call.count * size_of(call.type);
    const device::NvtxRange range(name, bytes);
    const CallId called = log->begin(call);
    try {
      if (context.options().device_sync > 1) check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      const device::DeviceTimeline::Scope scope = timeline->scope(name, call.stream, bytes);
      executor->run(call);
      log->queued();
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      fail({error}, called);
    }
  }
  void run_captured(const DeviceCall& call) {
    const std::string_view name = topology::to_string(call.collective);
    const auto refuse = [&](const std::string& why) {
      fail_with(ErrorCode::unsupported, "{} on devices: the stream is being captured, {}", name, why);
    };
    const std::size_t pieces = device::pieces_of(call.collective, ranks);
    if (!executor->can_be_captured(call.collective, call.count * pieces * size_of(call.type), call.type,
                                   call.wire)) {
      refuse(
          "but calls through UCX or the host's memory cannot be captured; expected DeviceOptions::path "
          "exchange "
          "or nccl");
    }
    if (const int wanted = context.options().device_sync; wanted > 0) {
      refuse(fmt::format("but DDL_OPTIONS=\"-dev_sync {}\" asks to wait for each call", wanted));
    }
    try {
      executor->run(call);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      fail({error, 0, std::string(name)}, {});
    }
  }
  /// Limits the calls in flight: a launch into a full queue blocks all launches of the process inside CUDA.
  void wait_for_room() {
    constexpr std::size_t most_under_way = 64;
    for (int looks = 0; log->open() >= most_under_way; ++looks) {
      log->update();
      if (has_failed) look();
      rest(looks);
    }
  }
  /// Several streams may share one hardware queue of the device. The kernel that a waiting kernel needs may
  /// then be queued behind another waiting kernel.
  void warn_of_queues() {
    constexpr int streams_of_rank =
        4;  // the caller's, one for each of a plan's two dimensions, the reducer's
    const std::vector<int> sharers = devices.threads_on_device_of(rank);
    if (sharers.size() == 1 || sharers.front() != rank) return;
    if (!device::has_cuda_environment()) {
      context.log().warning(fmt::format(
          "{} ranks of this process share CUDA device {}; expected CUDA_DEVICE_MAX_CONNECTIONS={} and "
          "CUDA_MODULE_LOADING={} in the environment before CUDA starts, without which their kernels may "
          "wait for each other until the deadline: set them, or call ddl::set_cuda_environment() first",
          sharers.size(), devices.of(rank).number, device::most_connections, device::eager));
    }
    if (static_cast<int>(sharers.size()) * streams_of_rank > device::most_connections) {
      context.log().warning(fmt::format(
          "{} ranks of this process share CUDA device {}, expected at most {}: of the device's {} queues "
          "several of their streams share one, and kernels may wait for each other until the deadline; "
          "put fewer ranks on a device",
          sharers.size(), devices.of(rank).number, device::most_connections / streams_of_rank,
          device::most_connections));
    }
  }
  void require_valid(const DeviceCall& call) const {
    const auto refuse = [&](const std::string& text) {
      fail_with(ErrorCode::invalid_argument, "{} on devices: {}", topology::to_string(call.collective), text);
    };
    if (call.root < 0 || call.root >= ranks) {
      refuse(fmt::format("found root {}, expected 0 to {}", call.root, ranks - 1));
    }
    if (size_of(call.type) == 0)
      refuse(fmt::format("there is no type number {}", static_cast<int>(call.type)));
    if (call.op > ReduceOp::prod) {
      refuse(fmt::format("there is no operation number {}", static_cast<int>(call.op)));
    }
    const auto check = [&](const void* data, const char* what) {
      if (data == nullptr && call.count > 0) refuse(fmt::format("the {} is null", what));
      if (reinterpret_cast<std::uintptr_t>(data) % size_of(call.type) != 0) {
        refuse(fmt::format("the {} begins at {}, which is no multiple of {} bytes", what, data,
                           size_of(call.type)));
      }
    };
    if (call.wire && *call.wire != DataType::bf16 && *call.wire != DataType::f16) {
      refuse(fmt::format("found the wire {}, expected bf16 or f16", to_string(*call.wire)));
    }
    if (reads_input(call, rank)) check(call.input, "input");
    if (writes_output(call, rank)) check(call.output, "output");
  }
  /// The guard thread: finds failed peers and expired deadlines even while no thread of the user waits, and
  /// ends the kernels that would otherwise wait forever.
  void look_after(const std::stop_token& stop) {
    constexpr auto between_looks = std::chrono::milliseconds(20);
    std::mutex own;
    std::condition_variable_any stopped;
    cudaSetDevice(devices.of(rank).number);
    device::allow_captures_of_others();
    std::unique_lock lock(own);
    while (!stop.stop_requested() && !has_failed) {
      log->update();
      examine();
      timeline->collect();
      stopped.wait_for(lock, stop, between_looks, [] { return false; });
    }
  }
  /// Looks for a failure of a group or a peer. Thread-safe.
  void examine() {
    const std::lock_guard lock(mutex);
    if (failure) return;
    std::optional<device::GroupFailure> found = executor->failure();
    // A mismatch explains more than a peer's failure, and a peer's failure more than a timeout.
    const collectives::Watch* const watch = watch_of(context);
    if (watch != nullptr && watch->failed() && !(found && found->error.code() == ErrorCode::mismatch)) {
      found = device::GroupFailure{{ErrorCode::peer_failed, watch->failure().text}};
    }
    if (found) fail(*found, found->captured.empty() ? log->called(*found) : CallId{});
  }
  /// Call with the mutex locked. Ends all waiting kernels and reports the failure to the job.
  void fail(const device::GroupFailure& found, const CallId& called) {
    if (failure) return;
    const std::string call = !found.captured.empty() ? found.captured + " of a captured graph on devices"
                             : called.sequence == 0  ? "collectives on devices"
                                                     : called.describe();
    const Error error(found.error.code(), fmt::format("{} on rank {}: {}", call, rank, found.error.what()));
    // First, because peers take connections that break for a death.
    engine_of(context).announce(error, called);
    executor->abort();
    failure = engine_of(context).give_up(error, called);
    has_failed = true;
  }
  /// Throws the failure, if there is one.
  void look() {
    if (!has_failed) examine();
    if (!has_failed) return;
    const std::lock_guard lock(mutex);
    is_told = true;
    throw Error(*failure);
  }
  void finish(DeviceStream stream) {
    constexpr auto most_after_failure = std::chrono::seconds(10);  // for aborted kernels to end
    std::optional<std::chrono::steady_clock::time_point> failed_at;
    for (int looks = 0;; ++looks) {
      try {
        if (device::is_done(stream)) break;
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        fail({error}, log->called({error}));
        break;
      }
      if (has_failed) {
        const auto now = std::chrono::steady_clock::now();
        if (!failed_at) failed_at = now;
        if (now - *failed_at > most_after_failure) break;
      }
      rest(looks);
    }
    look();
  }
};

DeviceCommunicator::DeviceCommunicator(const Context& context, const DeviceOptions& options)
    : state_(std::make_unique<State>(context, options)) {}
DeviceCommunicator::~DeviceCommunicator() = default;

int DeviceCommunicator::rank() const noexcept { return state_->rank; }
int DeviceCommunicator::size() const noexcept { return state_->ranks; }
int DeviceCommunicator::device() const noexcept { return state_->devices.of(rank()).number; }
std::string DeviceCommunicator::device_name() const { return state_->devices.of(rank()).name.data(); }
int DeviceCommunicator::blocks() const noexcept { return state_->executor->groups().blocks(); }
const Context& DeviceCommunicator::context() const noexcept { return state_->context; }
const topology::Topology& DeviceCommunicator::topology() const noexcept {
  return state_->executor->topology();
}
topology::Plan DeviceCommunicator::plan(Collective collective, std::size_t bytes, DataType type,
                                        std::optional<DataType> wire) const {
  if (collective == Collective::barrier) {
    throw Error(ErrorCode::invalid_argument, "plan on devices: found a barrier, which needs none");
  }
  return state_->executor->plan(collective, bytes, type, wire);
}
bool DeviceCommunicator::can_be_captured(Collective collective, std::size_t bytes, DataType type,
                                         std::optional<DataType> wire) const {
  return state_->context.options().device_sync == 0 &&
         state_->executor->can_be_captured(collective, bytes, type, wire);
}
bool DeviceCommunicator::reaches(const void* data, std::size_t bytes) const {
  return state_->executor->groups().reaches(data, bytes);
}

DeviceMemory DeviceCommunicator::allocate(std::size_t bytes) {
  state_->look();
  return {state_->executor->groups().allocate(bytes), bytes};
}

void DeviceCommunicator::all_reduce(const void* input, void* output, std::size_t count, DataType type,
                                    ReduceOp op, DeviceStream stream) {
  state_->run(Collective::all_reduce, input, output, count, type, op, 0, stream);
}
void DeviceCommunicator::all_reduce(const float* input, float* output, std::size_t count,
                                    const DeviceWire& wire, DeviceStream stream) {
  state_->run(Collective::all_reduce, input, output, count, DataType::f32, ReduceOp::sum, 0, stream, wire);
}
void DeviceCommunicator::reduce_scatter(const float* input, float* output, std::size_t count,
                                        const DeviceWire& wire, DeviceStream stream) {
  state_->run(Collective::reduce_scatter, input, output, count, DataType::f32, ReduceOp::sum, 0, stream,
              wire);
}
void DeviceCommunicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                        ReduceOp op, DeviceStream stream) {
  state_->run(Collective::reduce_scatter, input, output, count, type, op, 0, stream);
}
void DeviceCommunicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                                    DeviceStream stream) {
  state_->run(Collective::all_gather, input, output, count, type, ReduceOp::sum, 0, stream);
}
void DeviceCommunicator::broadcast(const void* input, void* output, std::size_t count, DataType type,
                                   int root, DeviceStream stream) {
  state_->run(Collective::broadcast, input, output, count, type, ReduceOp::sum, root, stream);
}
void DeviceCommunicator::reduce(const void* input, void* output, std::size_t count, DataType type,
                                ReduceOp op, int root, DeviceStream stream) {
  state_->run(Collective::reduce, input, output, count, type, op, root, stream);
}
void DeviceCommunicator::barrier(DeviceStream stream) {
  state_->run(Collective::barrier, nullptr, nullptr, 0, DataType::u8, ReduceOp::sum, 0, stream);
}

DeviceCommunicator::Scope DeviceCommunicator::scope(const char* name, DeviceStream stream,
                                                    std::uint64_t bytes) {
  return state_->timeline->is_on() ? state_->timeline->scope(name, stream, bytes) : nullptr;
}

void DeviceCommunicator::check() { state_->look(); }
void DeviceCommunicator::wait(DeviceStream stream) { state_->finish(stream); }
void DeviceCommunicator::release(DeviceStream stream) {
  std::erase(state_->streams, stream);
  state_->finish(stream);
}

}  // namespace ddl
