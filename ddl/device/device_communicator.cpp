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
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddl/context_state.hpp"
#include "ddl/cuda_check.hpp"
#include "ddl/device.hpp"
#include "ddl/device/call_log.hpp"
#include "ddl/device/cpu_binding.hpp"
#include "ddl/device/device_table.hpp"
#include "ddl/device/device_timeline.hpp"
#include "ddl/device/exchange_path.hpp"
#include "ddl/device/faster_from.hpp"
#include "ddl/device/host_path.hpp"
#include "ddl/device/nccl/nccl_path.hpp"
#include "ddl/device/nvtx_range.hpp"
#include "ddl/device/reproducible_path.hpp"
#include "ddl/log.hpp"

#ifdef DDL_HAVE_UCX
#include "ddl/device/ucx/ucx_path.hpp"
#endif

namespace ddl {

using device::DeviceCall;
using topology::Collective;

namespace {

#ifdef DDL_HAVE_UCX
std::unique_ptr<device::DevicePath> open_ucx_path(Context& context, const device::DeviceTable& devices,
                                                  std::size_t staging_bytes) {
  return std::make_unique<device::UcxPath>(context, devices, staging_bytes);
}
#else
std::unique_ptr<device::DevicePath> open_ucx_path(Context&, const device::DeviceTable&, std::size_t) {
  throw Error(ErrorCode::unsupported,
              "UCX cannot be used: this build is without it (CMake option DDL_WITH_UCX)")
      .as_agreed();
}
#endif

}  // namespace

struct DeviceCommunicator::State {
  State(Context& context_, const DeviceOptions& options);
  ~State();

  Context& context;
  const int exceptions_at_start = std::uncaught_exceptions();
  const int rank;
  const int ranks;
  const device::DeviceTable devices;
  std::optional<device::DeviceTimeline> timeline;
  std::unique_ptr<device::ExchangePath> exchange;  // null: the other one alone
  std::unique_ptr<device::DevicePath> large;       // null: the exchange alone
  std::size_t large_from = 0;
  std::vector<std::unique_ptr<device::ReproduciblePath>> in_front;  // of these, in reproducible contexts
  device::ReproduciblePath::Memory exact_memory = {};               // that those share
  std::vector<std::byte*> own_memory;
  std::vector<DeviceStream> streams;
  std::optional<device::CallLog> log;

  std::mutex mutex;  // of the failure
  std::optional<Error> failure;
  std::atomic<bool> has_failed = false;
  bool is_told = false;  // to who uses this
  std::jthread guard;

  void open_paths(const DeviceOptions& options);
  void keep_bits(std::size_t bytes);
  [[nodiscard]] device::DevicePath* front_of(device::DevicePath* path) const;
  [[nodiscard]] std::vector<device::DevicePath*> paths() const;
  std::byte* allocate(std::size_t bytes);
  void run(const DeviceCall& call);
  void require_valid(const DeviceCall& call) const;
  void look_after(const std::stop_token& stop);
  void examine();
  void fail(const device::PathFailure& found, const device::DevicePath* path);
  void look();
  void finish(DeviceStream stream);
};

DeviceCommunicator::State::State(Context& context_, const DeviceOptions& options)
    : context(context_), rank(context_.rank()), ranks(context_.size()), devices(context_, options.device) {
  if (context.hosts() > 1 && options.path == DevicePathChoice::exchange) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("DeviceOptions::path: the exchange is for the ranks of one host, found {} hosts",
                            context.hosts()))
        .as_agreed();
  }
  for (const std::string& shortcoming : devices.shortcomings()) note_shortcoming(context, shortcoming);
  if (options.bind && devices.is_one_process_each()) {
    const device::DeviceEntry& own = devices.of(rank);
    context.log().info(fmt::format("CUDA device {} ({}, {}): {}", own.number, own.name.data(),
                                   own.pci_address.data(), device::bind_near(own.pci_address.data())));
  }
  open_paths(options);
  context.on_all_ranks("the device's clock", [&] { timeline.emplace(context.timeline()); });
  log.emplace(engine_of(context).recorder(), paths());
  guard = std::jthread([this](const std::stop_token& stop) { look_after(stop); });
}

void DeviceCommunicator::State::open_paths(const DeviceOptions& options) {
  const DevicePathChoice path = options.path;
  std::string reasons;  // for doing without what would be best
  const auto attempt = [&](DevicePathChoice choice, const auto& open) {
    if (path != choice && path != DevicePathChoice::automatic) return;
    try {
      open();
    } catch (const Error& error) {
      if (path == choice || error.code() != ErrorCode::unsupported) throw;
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
      return;
    }
    if (context.options().reproducible) keep_bits(options.staging_bytes);
  };
  if (context.hosts() == 1) {
    attempt(DevicePathChoice::exchange, [&] {
      exchange = std::make_unique<device::ExchangePath>(context, devices, options.staging_bytes);
    });
  }
  if (exchange && ranks == 1) return;
  attempt(DevicePathChoice::nccl, [&] { large = std::make_unique<device::NcclPath>(context, devices); });
  if (exchange && !large) {
    context.log().info("collectives on devices go by the exchange alone" +
                       (reasons.empty() ? "" : ": " + reasons));
    return;
  }
  if (exchange) {
    large_from = device::faster_from(context, *front_of(exchange.get()), *front_of(large.get()));
    return context.log().info(fmt::format("collectives on devices go by NCCL from {} bytes on", large_from));
  }
  if (large) {
    if (!reasons.empty()) note_shortcoming(context, "collectives on devices go by NCCL alone: " + reasons);
    return;
  }
  attempt(DevicePathChoice::ucx, [&] {
    if (path == DevicePathChoice::automatic && context.options().network == NetworkUse::mpi) {
      throw Error(ErrorCode::unsupported, "UCX is not wanted (DDL_NETWORK=mpi)").as_agreed();
    }
    large = open_ucx_path(context, devices, options.staging_bytes);
  });
  if (large) {
    if (!reasons.empty()) note_shortcoming(context, "collectives on devices go by UCX: " + reasons);
    return;
  }
  const std::string better = reasons;
  attempt(DevicePathChoice::host, [&] { large = std::make_unique<device::HostPath>(context, devices); });
  if (!large) {
    throw Error(ErrorCode::unsupported, "the ranks' devices cannot exchange data: " + reasons).as_agreed();
  }
  if (!better.empty()) {
    note_shortcoming(context, "collectives on devices go through the host's memory: " + better);
  }
}

/// Puts what keeps them in front of the paths so far, which share its memory. Collective.
void DeviceCommunicator::State::keep_bits(std::size_t bytes) {
  for (device::DevicePath* const path : paths()) {
    if (path->is_reproducible()) continue;
    if (exact_memory.data == nullptr) {
      auto least = static_cast<std::int64_t>(bytes);
      context.communicator().all_reduce(std::span(&least, 1), ReduceOp::min);
      device::ReproduciblePath::load(context);
      exact_memory.bytes =
          std::max(static_cast<std::size_t>(least), device::ReproduciblePath::least_bytes(ranks));
      exact_memory.data = allocate(exact_memory.bytes);
    }
    in_front.push_back(std::make_unique<device::ReproduciblePath>(*path, rank, ranks, exact_memory));
  }
}

device::DevicePath* DeviceCommunicator::State::front_of(device::DevicePath* path) const {
  const auto front = std::ranges::find_if(in_front, [&](const auto& own) { return own->is_before(*path); });
  return front == in_front.end() ? path : front->get();
}

std::vector<device::DevicePath*> DeviceCommunicator::State::paths() const {
  std::vector<device::DevicePath*> result;
  if (exchange) result.push_back(front_of(exchange.get()));
  if (large) result.push_back(front_of(large.get()));
  return result;
}

std::byte* DeviceCommunicator::State::allocate(std::size_t bytes) {
  if (exchange) return exchange->allocate(bytes);
  context.on_all_ranks("device memory", [&] {
    void* memory = nullptr;
    const cudaError_t result = cudaMalloc(&memory, std::max<std::size_t>(bytes, 1));
    if (result != cudaSuccess) {
      cudaGetLastError();
      throw Error(ErrorCode::unsupported, fmt::format("rank {} cannot have {} bytes of device memory: {}",
                                                      rank, bytes, cudaGetErrorString(result)));
    }
    own_memory.push_back(static_cast<std::byte*>(memory));
    check_cuda(cudaMemset(memory, 0, bytes), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  });
  return own_memory.back();
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
  if (has_failed) look();
  require_valid(call);
  if (call.count == 0 && call.collective != Collective::barrier) return;
  if (std::ranges::find(streams, call.stream) == streams.end()) streams.push_back(call.stream);
  const bool is_large = large && (!exchange || call.count * size_of(call.type) >= large_from);
  device::DevicePath& path = *front_of(is_large ? large.get() : exchange.get());
  const char* const name = topology::to_string(call.collective).data();
  const std::size_t bytes = call.count * size_of(call.type);
  const device::NvtxRange range(name, bytes);
  const std::uint64_t number = log->begin(call, path);
  try {
    if (context.options().device_sync > 1) check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const std::uint64_t begun = timeline->is_on() ? timeline->begin(call.stream) : 0;
    path.run(call);
    if (begun != 0) timeline->end(begun, call.stream, name, bytes);
  } catch (const Error& error) {
    const std::lock_guard lock(mutex);
    fail({error, number}, &path);
  }
  if (has_failed) look();
  if (context.options().device_sync > 0) finish(call.stream);
}

/// Others that fail, and the deadline, end what would wait for ever, whether somebody waits for it or not.
void DeviceCommunicator::State::look_after(const std::stop_token& stop) {
  constexpr auto between_looks = std::chrono::milliseconds(20);
  std::mutex own;
  std::condition_variable_any stopped;
  cudaSetDevice(devices.of(rank).number);
  std::unique_lock lock(own);
  while (!stop.stop_requested() && !has_failed) {
    log->update();
    examine();
    timeline->collect();
    stopped.wait_for(lock, stop, between_looks, [] { return false; });
  }
}

/// Finds what has failed so far. Any thread.
void DeviceCommunicator::State::examine() {
  const std::lock_guard lock(mutex);
  if (failure) return;
  std::optional<device::PathFailure> found;
  const device::DevicePath* where = nullptr;
  for (device::DevicePath* path : paths()) {
    if (found) break;
    found = path->failure();
    where = path;
  }
  // What others call says more than that somebody else has failed, and that more than who is late.
  const collectives::Watch* const watch = watch_of(context);
  if (watch != nullptr && watch->failed() && !(found && found->error.code() == ErrorCode::mismatch)) {
    found = device::PathFailure{{ErrorCode::peer_failed, watch->failure().text}};
    where = nullptr;
  }
  if (found) fail(*found, where);
}

/// Under the mutex. Has everything that waits end, and tells the job.
void DeviceCommunicator::State::fail(const device::PathFailure& found, const device::DevicePath* path) {
  if (failure) return;
  const collectives::Called called = log->called(path, found.call);
  const std::string call = called.sequence == 0 ? "collectives on devices" : record_of(called).describe();
  for (device::DevicePath* each : paths()) each->abort();
  const Error error(found.error.code(), fmt::format("{} on rank {}: {}", call, rank, found.error.what()));
  failure = engine_of(context).give_up(error, called.communicator, called.sequence);
  has_failed = true;
}

/// Throws what has failed so far.
void DeviceCommunicator::State::look() {
  if (!has_failed) examine();
  if (!has_failed) return;
  const std::lock_guard lock(mutex);
  is_told = true;
  throw Error(*failure);
}

void DeviceCommunicator::State::finish(DeviceStream stream) {
  constexpr int looks_before_naps = 1000;
  constexpr auto most_after_failure = std::chrono::seconds(10);  // for kernels that have been told to end
  std::optional<std::chrono::steady_clock::time_point> failed_at;
  for (int looks = 0;; ++looks) {
    const cudaError_t result = cudaStreamQuery(stream);
    if (result == cudaSuccess) break;
    cudaGetLastError();  // it must not be blamed on the next launch
    if (result != cudaErrorNotReady) {
      const std::lock_guard lock(mutex);
      try {
        check_cuda(result, "cudaStreamQuery");
      } catch (const Error& error) {
        fail({error, 0}, nullptr);
      }
      break;
    }
    if (has_failed) {
      const auto now = std::chrono::steady_clock::now();
      if (!failed_at) failed_at = now;
      if (now - *failed_at > most_after_failure) break;
    }
    if (looks < looks_before_naps) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  look();
}

DeviceCommunicator::State::~State() {
  bool in_order = true;
  const bool was_told = is_told;
  if (std::uncaught_exceptions() > exceptions_at_start) {
    announce_failure(context, "an exception has left the scope of a DeviceCommunicator");
  }
  try {
    for (DeviceStream stream : streams) finish(stream);
    for (device::DevicePath* path : paths()) path->settle();
    look();
  } catch (const std::exception& error) {
    in_order = false;
    if (!was_told && std::uncaught_exceptions() == exceptions_at_start) context.log().error(error.what());
  }
  guard = {};
  if (in_order) timeline->collect();
  log.reset();
  for (device::DevicePath* path : paths()) path->close(in_order);
  for (std::byte* memory : own_memory) cudaFree(memory);
}

DeviceCommunicator::DeviceCommunicator(Context& context, const DeviceOptions& options)
    : state_(std::make_unique<State>(context, options)) {}
DeviceCommunicator::~DeviceCommunicator() = default;

int DeviceCommunicator::rank() const noexcept { return state_->rank; }
int DeviceCommunicator::size() const noexcept { return state_->ranks; }
int DeviceCommunicator::device() const noexcept { return state_->devices.of(rank()).number; }
std::string DeviceCommunicator::device_name() const { return state_->devices.of(rank()).name.data(); }
int DeviceCommunicator::blocks() const noexcept { return state_->exchange ? state_->exchange->blocks() : 0; }
Context& DeviceCommunicator::context() const noexcept { return state_->context; }
bool DeviceCommunicator::reaches(const void* data, std::size_t bytes) const {
  return !state_->exchange || state_->exchange->reaches(data, bytes);
}

DeviceMemory DeviceCommunicator::allocate(std::size_t bytes) {
  state_->look();
  return {state_->allocate(bytes), bytes};
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

DeviceCommunicator::Scope::Scope(State* state, const char* name, std::uint64_t bytes, DeviceStream stream)
    : state_(state), name_(name), bytes_(bytes), stream_(stream) {
  if (state_ != nullptr) begun_ = state_->timeline->begin(stream);
}
DeviceCommunicator::Scope::Scope(Scope&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)),
      name_(other.name_),
      bytes_(other.bytes_),
      stream_(other.stream_),
      begun_(other.begun_) {}
DeviceCommunicator::Scope::~Scope() {
  if (state_ == nullptr) return;
  try {
    state_->timeline->end(begun_, stream_, name_, bytes_);
  } catch (const Error&) {
    // The device is lost: the next call says so.
  }
}
DeviceCommunicator::Scope DeviceCommunicator::scope(const char* name, DeviceStream stream,
                                                    std::uint64_t bytes) {
  return {state_->timeline->is_on() ? state_.get() : nullptr, name, bytes, stream};
}

void DeviceCommunicator::check() { state_->look(); }
void DeviceCommunicator::wait(DeviceStream stream) { state_->finish(stream); }
void DeviceCommunicator::release(DeviceStream stream) {
  std::erase(state_->streams, stream);
  state_->finish(stream);
}

}  // namespace ddl
