#include "ddl/device/device_paths.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ddl/context/agreement.hpp"
#include "ddl/context/connect.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/cuda_check.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/host_path.hpp"
#include "ddl/device/nccl/nccl_path.hpp"
#include "ddl/log.hpp"

#ifdef DDL_HAVE_UCX
#include "ddl/device/ucx/ucx_path.hpp"
#endif

namespace ddl::device {
namespace {

#ifdef DDL_HAVE_UCX
std::unique_ptr<DevicePath> open_ucx_path(GroupMembers& members, const DeviceTable& devices,
                                          std::size_t staging_bytes) {
  return std::make_unique<UcxPath>(members, devices, staging_bytes);
}
#else
std::unique_ptr<DevicePath> open_ucx_path(GroupMembers&, const DeviceTable&, std::size_t) {
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

/// Hosts have as many ranks each, and more than one: what the dimensions of an all_reduce between hosts need.
bool is_even(const topology::RankMap& map) {
  for (int host = 1; host < map.hosts(); ++host) {
    if (map.ranks_of(host).size() != map.ranks_of(0).size()) return false;
  }
  return map.hosts() > 1 && map.ranks_of(0).size() > 1;
}

}  // namespace

DevicePaths::DevicePaths(Context& context, const DeviceTable& devices, const DeviceOptions& wanted)
    : context_(context), all_(context) {
  const DeviceOptions options = agreed(context, wanted);
  if (context.hosts() > 1 && options.path == DevicePathChoice::exchange) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("DeviceOptions::path: the exchange is for the ranks of one host, found {} hosts",
                            context.hosts()))
        .as_agreed();
  }
  const auto topology = device_topology(context, devices);
  open(devices, options);
  topology_ = std::make_shared<const topology::Topology>(topology->with_carriers(carriers_));
  if (context.is_root()) save_topology(context.options(), *topology_, ".devices.json", context.log());
  plans_ = plans_of(context.options(), context.size(), [found = topology_] { return found; });
  ScratchMemory scratch;
  if (inside_ && (groups_.nccl_between != nullptr || groups_.between_hosts != nullptr)) {
    constexpr std::size_t least_of_piece = 256;
    const auto pieces = static_cast<std::size_t>(context.size() + context.hosts());
    scratch.bytes = std::max(options.staging_bytes / 4, 2 * pieces * least_of_piece);
    scratch.data = allocate(scratch.bytes);
  }
  executor_ = std::make_unique<PlanExecutor>(context, *plans_, groups_, scratch);
  if (context.options().reproducible && !executor_->is_reproducible()) keep_bits(options.staging_bytes);
}

DevicePaths::~DevicePaths() {
  for (std::byte* memory : own_memory_) cudaFree(memory);
}

/// Whether it could be opened; if not, and that was not asked for, why.
template <typename Open>
bool DevicePaths::attempt(bool is_asked_for, std::string& reasons, const Open& open) {
  const std::size_t before = opened_.size();
  const DimensionGroups groups = groups_;
  try {
    open();
    return true;
  } catch (const Error& error) {
    if (is_asked_for || error.code() != ErrorCode::unsupported) throw;
    // Where the group of one dimension cannot be had, the others are of no use.
    groups_ = groups;
    for (; opened_.size() > before; opened_.pop_back()) opened_.back()->close(true);
    reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    return false;
  }
}

void DevicePaths::open(const DeviceTable& devices, const DeviceOptions& options) {
  const DevicePathChoice path = options.path;
  const auto may_be = [&](DevicePathChoice choice) {
    return path == choice || path == DevicePathChoice::automatic;
  };
  const bool is_one_host = context_.hosts() == 1;
  const bool has_dimensions = is_even(context_.communicator().rank_map());
  if (has_dimensions) {
    inside_.emplace(context_, context_.communicator().rank_map().host_of(context_.rank()));
    between_.emplace(context_, context_.local_rank());
  }
  std::string reasons;  // for doing without what would be best
  if (may_be(DevicePathChoice::exchange) && (is_one_host || has_dimensions)) {
    GroupMembers& members = is_one_host ? all_ : *inside_;
    carriers_.exchange = attempt(path == DevicePathChoice::exchange, reasons, [&] {
      exchange_ = std::make_unique<ExchangePath>(members, devices, options.staging_bytes);
    });
    if (carriers_.exchange) carriers_.one_shot_bytes = exchange_->most_whole_bytes();
    groups_.exchange = exchange_.get();
  }
  if (exchange_ && context_.size() == 1) return;
  if (may_be(DevicePathChoice::nccl)) {
    carriers_.nccl = attempt(path == DevicePathChoice::nccl, reasons, [&] {
      groups_.nccl = add(std::make_unique<NcclPath>("NCCL over all ranks", all_, devices));
      if (!has_dimensions) return;
      groups_.nccl_inside = add(std::make_unique<NcclPath>("NCCL inside a host", *inside_, devices));
      groups_.nccl_between = add(std::make_unique<NcclPath>("NCCL between hosts", *between_, devices));
    });
  }
  if (is_one_host && (exchange_ || carriers_.nccl)) {
    if (!exchange_ && !reasons.empty()) {
      note_shortcoming(context_, "collectives on devices go by NCCL alone: " + reasons);
    }
    if (!carriers_.nccl && !reasons.empty()) {
      context_.log().info("collectives on devices go by the exchange alone: " + reasons);
    }
    return;
  }
  if (carriers_.nccl) return;
  open_between(devices, options, reasons);
}

/// Without NCCL between the hosts: UCX, else the host's memory.
void DevicePaths::open_between(const DeviceTable& devices, const DeviceOptions& options,
                               std::string reasons) {
  const DevicePathChoice path = options.path;
  const bool has_inside = exchange_ != nullptr && context_.hosts() > 1;
  const auto open_both = [&](const auto& make) {
    groups_.between_all = add(make(all_));
    if (has_inside) groups_.between_hosts = add(make(*between_));
  };
  if (path == DevicePathChoice::ucx || path == DevicePathChoice::automatic) {
    const bool is_open = attempt(path == DevicePathChoice::ucx, reasons, [&] {
      if (path == DevicePathChoice::automatic && context_.options().network == NetworkUse::mpi) {
        throw Error(ErrorCode::unsupported, "UCX is not wanted (DDL_NETWORK=mpi)").as_agreed();
      }
      open_both(
          [&](GroupMembers& members) { return open_ucx_path(members, devices, options.staging_bytes); });
    });
    if (is_open) {
      carriers_.network = true;
      if (!reasons.empty()) note_shortcoming(context_, "collectives on devices go by UCX: " + reasons);
      return;
    }
  }
  const std::string better = reasons;
  const bool is_open = attempt(path == DevicePathChoice::host, reasons, [&] {
    open_both([&](GroupMembers& members) { return std::make_unique<HostPath>(members, devices); });
  });
  if (!is_open) {
    throw Error(ErrorCode::unsupported, "the ranks' devices cannot exchange data: " + reasons).as_agreed();
  }
  carriers_.host_memory = true;
  if (!better.empty()) {
    note_shortcoming(context_, "collectives on devices go through the host's memory: " + better);
  }
}

DevicePath* DevicePaths::add(std::unique_ptr<DevicePath> group) {
  opened_.push_back(std::move(group));
  return opened_.back().get();
}

/// Collective.
void DevicePaths::keep_bits(std::size_t bytes) {
  ReproduciblePath::load(context_);
  ReproduciblePath::Memory memory;
  memory.bytes = std::max(bytes, ReproduciblePath::least_bytes(context_.size()));
  memory.data = allocate(memory.bytes);
  front_ = std::make_unique<ReproduciblePath>(*executor_, context_.rank(), context_.size(), memory);
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

}  // namespace ddl::device
