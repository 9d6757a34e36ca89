#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ddl/context_state.hpp"
#include "ddl/cuda_check.hpp"
#include "ddl/device.hpp"
#include "ddl/device/exchange_path.hpp"
#include "ddl/device/faster_from.hpp"
#include "ddl/device/host_path.hpp"
#include "ddl/device/nccl/nccl_path.hpp"
#include "ddl/log.hpp"

namespace ddl {

using device::DeviceCall;
using topology::Collective;

struct DeviceCommunicator::State {
  State(Context& context_, const DeviceOptions& options);
  ~State();

  Context& context;
  const int rank;
  const int ranks;
  int device = -1;
  std::string name;
  std::unique_ptr<device::ExchangePath> exchange;  // null: the other one alone
  std::unique_ptr<device::DevicePath> large;       // null: the exchange alone
  std::size_t large_from = 0;
  std::vector<std::byte*> own_memory;
  std::vector<DeviceStream> streams;
  std::optional<Error> failure;

  void select_device(int wanted);
  void open_paths(const DeviceOptions& options);
  [[nodiscard]] std::vector<device::DevicePath*> paths() const;
  std::byte* allocate(std::size_t bytes);
  void run(const DeviceCall& call);
  void require_valid(const DeviceCall& call) const;
  void look();
  void fail(Error error);
  void finish(DeviceStream stream);
};

DeviceCommunicator::State::State(Context& context_, const DeviceOptions& options)
    : context(context_), rank(context_.rank()), ranks(context_.size()) {
  context.on_all_ranks("devices", [&] {
    if (context.hosts() > 1 && options.path == DevicePathChoice::exchange) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("DeviceOptions::path: the exchange is for the ranks of one host, found {} hosts",
                      context.hosts()));
    }
    select_device(options.device);
  });
  open_paths(options);
}

void DeviceCommunicator::State::open_paths(const DeviceOptions& options) {
  const bool is_one_host = context.hosts() == 1;
  const DevicePathChoice path = options.path;
  if (path == DevicePathChoice::host) {
    large = std::make_unique<device::HostPath>(context);
    return;
  }
  if (path == DevicePathChoice::exchange || (path == DevicePathChoice::automatic && is_one_host)) {
    exchange = std::make_unique<device::ExchangePath>(context, options.staging_bytes);
    if (path == DevicePathChoice::exchange || ranks == 1) return;
  }
  try {
    large = std::make_unique<device::NcclPath>(context);
  } catch (const Error& error) {
    if (path == DevicePathChoice::nccl || error.code() != ErrorCode::unsupported) throw;
    if (exchange) {
      context.log().info(fmt::format("collectives on devices go by the exchange alone: {}", error.what()));
      return;
    }
    if (context.options().strict) throw;
    context.log().warning(
        fmt::format("collectives on devices go through the host's memory: {}", error.what()));
    large = std::make_unique<device::HostPath>(context);
    return;
  }
  if (!exchange) return;
  large_from = device::faster_from(context, *exchange, *large);
  context.log().info(fmt::format("collectives on devices go by NCCL from {} bytes on", large_from));
}

std::vector<device::DevicePath*> DeviceCommunicator::State::paths() const {
  std::vector<device::DevicePath*> result;
  if (exchange) result.push_back(exchange.get());
  if (large) result.push_back(large.get());
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

void DeviceCommunicator::State::select_device(int wanted) {
  const int devices = cuda_devices();
  if (wanted >= devices || wanted < -1) {
    throw Error(ErrorCode::unsupported,
                fmt::format("CUDA device {} does not exist: {} found, numbered from 0", wanted, devices));
  }
  device = wanted >= 0 ? wanted : context.local_rank() % devices;
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  name = properties.name;
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
  if (std::ranges::find(streams, call.stream) == streams.end()) streams.push_back(call.stream);
  const bool is_large = large && (!exchange || call.count * size_of(call.type) >= large_from);
  is_large ? large->run(call) : exchange->run(call);
}

void DeviceCommunicator::State::fail(Error error) {
  for (device::DevicePath* path : paths()) path->abort();
  failure = error;
  announce_failure(context, error.what());
  throw error;
}

/// Throws what has failed so far.
void DeviceCommunicator::State::look() {
  if (failure) throw *failure;
  std::optional<Error> found;
  for (device::DevicePath* path : paths()) {
    if (!found) found = path->failure();
  }
  // What others call says more than that somebody else has failed, and that more than who is late.
  if (found && found->code() == ErrorCode::mismatch) fail(*found);
  collectives::Watch* const watch = watch_of(context);
  if (watch != nullptr && watch->failed()) {
    fail({ErrorCode::peer_failed, "collectives on devices end: " + watch->failure().text});
  }
  if (found) fail(*found);
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
  bool in_order = true;
  try {
    for (DeviceStream stream : streams) finish(stream);
  } catch (const std::exception&) {
    in_order = false;
  }
  for (device::DevicePath* path : paths()) path->close(in_order);
  for (std::byte* memory : own_memory) cudaFree(memory);
}

DeviceCommunicator::DeviceCommunicator(Context& context, const DeviceOptions& options)
    : state_(std::make_unique<State>(context, options)) {}
DeviceCommunicator::~DeviceCommunicator() = default;

int DeviceCommunicator::rank() const noexcept { return state_->rank; }
int DeviceCommunicator::size() const noexcept { return state_->ranks; }
int DeviceCommunicator::device() const noexcept { return state_->device; }
const std::string& DeviceCommunicator::device_name() const noexcept { return state_->name; }
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

void DeviceCommunicator::check() { state_->look(); }
void DeviceCommunicator::wait(DeviceStream stream) { state_->finish(stream); }
void DeviceCommunicator::release(DeviceStream stream) {
  std::erase(state_->streams, stream);
  state_->finish(stream);
}

}  // namespace ddl
