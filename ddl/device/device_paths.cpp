#include "ddl/device/device_paths.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ddl/agreement.hpp"
#include "ddl/context_state.hpp"
#include "ddl/cuda_check.hpp"
#include "ddl/device/faster_from.hpp"
#include "ddl/device/host_path.hpp"
#include "ddl/device/nccl/nccl_path.hpp"
#include "ddl/log.hpp"

#ifdef DDL_HAVE_UCX
#include "ddl/device/ucx/ucx_path.hpp"
#endif

namespace ddl::device {
namespace {

#ifdef DDL_HAVE_UCX
std::unique_ptr<DevicePath> open_ucx_path(Context& context, const DeviceTable& devices,
                                          std::size_t staging_bytes) {
  return std::make_unique<UcxPath>(context, devices, staging_bytes);
}
#else
std::unique_ptr<DevicePath> open_ucx_path(Context&, const DeviceTable&, std::size_t) {
  throw Error(ErrorCode::unsupported,
              "UCX cannot be used: this build is without it (CMake option DDL_WITH_UCX)")
      .as_agreed();
}
#endif

std::string_view to_string(DevicePathChoice path) noexcept {
  switch (path) {
    case DevicePathChoice::automatic:
      return "automatic";
    case DevicePathChoice::exchange:
      return "exchange";
    case DevicePathChoice::nccl:
      return "nccl";
    case DevicePathChoice::ucx:
      return "ucx";
    case DevicePathChoice::host:
      return "host";
  }
  return "?";
}

/// What all ranks must have alike, because it decides which calls meet, and how they are cut.
DeviceOptions agreed(Context& context, DeviceOptions options) {
  require_same_entries(context, "DeviceCommunicator", "option",
                       {fmt::format("path {}", to_string(options.path))});
  auto least = static_cast<std::int64_t>(options.staging_bytes);
  context.communicator().all_reduce(std::span(&least, 1), ReduceOp::min);
  options.staging_bytes = static_cast<std::size_t>(least);
  return options;
}

}  // namespace

DevicePaths::DevicePaths(Context& context, const DeviceTable& devices,
                         std::shared_ptr<const topology::Topology> topology, const DeviceOptions& wanted)
    : context_(context), topology_(std::move(topology)) {
  const DeviceOptions options = agreed(context, wanted);
  if (context.hosts() > 1 && options.path == DevicePathChoice::exchange) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("DeviceOptions::path: the exchange is for the ranks of one host, found {} hosts",
                            context.hosts()))
        .as_agreed();
  }
  open(devices, options);
}

DevicePaths::~DevicePaths() {
  for (std::byte* memory : own_memory_) cudaFree(memory);
}

void DevicePaths::open(const DeviceTable& devices, const DeviceOptions& options) {
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
    if (context_.options().reproducible) keep_bits(options.staging_bytes);
  };
  if (context_.hosts() == 1) {
    attempt(DevicePathChoice::exchange,
            [&] { exchange_ = std::make_unique<ExchangePath>(context_, devices, options.staging_bytes); });
  }
  if (exchange_ && context_.size() == 1) return;
  attempt(DevicePathChoice::nccl, [&] { large_ = std::make_unique<NcclPath>(context_, devices, topology_); });
  if (exchange_ && !large_) {
    context_.log().info("collectives on devices go by the exchange alone" +
                        (reasons.empty() ? "" : ": " + reasons));
    return;
  }
  if (exchange_) {
    large_from_ = faster_from(context_, *front_of(exchange_.get()), *front_of(large_.get()));
    return context_.log().info(
        fmt::format("collectives on devices go by NCCL from {} bytes on", large_from_));
  }
  if (large_) {
    if (!reasons.empty()) note_shortcoming(context_, "collectives on devices go by NCCL alone: " + reasons);
    return;
  }
  attempt(DevicePathChoice::ucx, [&] {
    if (path == DevicePathChoice::automatic && context_.options().network == NetworkUse::mpi) {
      throw Error(ErrorCode::unsupported, "UCX is not wanted (DDL_NETWORK=mpi)").as_agreed();
    }
    large_ = open_ucx_path(context_, devices, options.staging_bytes);
  });
  if (large_) {
    if (!reasons.empty()) note_shortcoming(context_, "collectives on devices go by UCX: " + reasons);
    return;
  }
  const std::string better = reasons;
  attempt(DevicePathChoice::host, [&] { large_ = std::make_unique<HostPath>(context_, devices); });
  if (!large_) {
    throw Error(ErrorCode::unsupported, "the ranks' devices cannot exchange data: " + reasons).as_agreed();
  }
  if (!better.empty()) {
    note_shortcoming(context_, "collectives on devices go through the host's memory: " + better);
  }
}

/// Puts what keeps them in front of the paths so far, which share its memory. Collective.
void DevicePaths::keep_bits(std::size_t bytes) {
  for (DevicePath* const path : all()) {
    if (path->is_reproducible()) continue;
    if (exact_memory_.data == nullptr) {
      ReproduciblePath::load(context_);
      exact_memory_.bytes = std::max(bytes, ReproduciblePath::least_bytes(context_.size()));
      exact_memory_.data = allocate(exact_memory_.bytes);
    }
    in_front_.push_back(
        std::make_unique<ReproduciblePath>(*path, context_.rank(), context_.size(), exact_memory_));
  }
}

DevicePath* DevicePaths::front_of(DevicePath* path) const {
  const auto front = std::ranges::find_if(in_front_, [&](const auto& own) { return own->is_before(*path); });
  return front == in_front_.end() ? path : front->get();
}

std::vector<DevicePath*> DevicePaths::all() const {
  std::vector<DevicePath*> result;
  if (exchange_) result.push_back(front_of(exchange_.get()));
  if (large_) result.push_back(front_of(large_.get()));
  return result;
}

std::byte* DevicePaths::allocate(std::size_t bytes) {
  if (exchange_) return exchange_->allocate(bytes);
  context_.on_all_ranks("device memory", [&] {
    void* memory = nullptr;
    const cudaError_t result = cudaMalloc(&memory, std::max<std::size_t>(bytes, 1));
    if (result != cudaSuccess) {
      cudaGetLastError();
      throw Error(ErrorCode::unsupported, fmt::format("rank {} cannot have {} bytes of device memory: {}",
                                                      context_.rank(), bytes, cudaGetErrorString(result)));
    }
    own_memory_.push_back(static_cast<std::byte*>(memory));
    check_cuda(cudaMemset(memory, 0, bytes), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  });
  return own_memory_.back();
}

DevicePath& DevicePaths::of(const DeviceCall& call) const {
  const bool is_large = large_ && (!exchange_ || call.count * size_of(call.type) >= large_from_);
  return *front_of(is_large ? large_.get() : exchange_.get());
}

}  // namespace ddl::device
