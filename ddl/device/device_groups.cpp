#include "ddl/device/device_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "ddl/context/context_state.hpp"
#include "ddl/device/host_group.hpp"
#include "ddl/device/nccl/nccl_group.hpp"
#include "ddl/log.hpp"

#ifdef DDL_HAVE_UCX
#include "ddl/device/ucx/ucx_group.hpp"
#endif

namespace ddl::device {
namespace {

using topology::Carrier;

#ifdef DDL_HAVE_UCX
std::unique_ptr<DimensionGroup> open_ucx_group(GroupMembers& members, const DeviceTable& devices,
                                               std::size_t staging_bytes) {
  return std::make_unique<UcxGroup>(members, devices, staging_bytes);
}
#else
std::unique_ptr<DimensionGroup> open_ucx_group(GroupMembers&, const DeviceTable&, std::size_t) {
  throw Error(ErrorCode::unsupported,
              "UCX cannot be used: this build is without it (CMake option DDL_WITH_UCX)")
      .as_agreed();
}
#endif

/// Whether there are several hosts with the same number of ranks, two or more, as calls by dimension need.
bool is_even(const topology::RankMap& map) {
  for (int host = 1; host < map.hosts(); ++host) {
    if (map.ranks_of(host).size() != map.ranks_of(0).size()) return false;
  }
  return map.hosts() > 1 && map.ranks_of(0).size() > 1;
}

}  // namespace

DeviceGroups::DeviceGroups(const Context& context, const DeviceTable& devices, const DeviceOptions& options)
    : context_(context), wanted_(options.path), everyone_(context, context.communicator()) {
  const auto may_be = [&](DevicePathChoice path) {
    return wanted_ == path || wanted_ == DevicePathChoice::automatic;
  };
  const bool is_one_host = context.hosts() == 1;
  Communicator& job = context.communicator();
  if (is_even(job.rank_map())) {
    inside_.emplace(context, job.split(job.rank_map().host_of(context.rank())));
    between_.emplace(context, job.split(context.local_rank()));
  }
  std::string reasons;  // why preferred groups could not be opened
  if (may_be(DevicePathChoice::exchange) && (is_one_host || inside_)) {
    attempt(DevicePathChoice::exchange, reasons, [&] {
      auto made =
          std::make_unique<ExchangeGroup>(is_one_host ? everyone_ : *inside_, devices, options.staging_bytes);
      exchange_ = made.get();
      opened_.push_back({Carrier::cuda_ipc, is_one_host ? Scope::all : Scope::inside, std::move(made)});
    });
  }
  if (exchange_ != nullptr && context.size() == 1) return;
  if (may_be(DevicePathChoice::nccl)) {
    const auto open = [&](Scope scope, const char* name, GroupMembers& members) {
      opened_.push_back({Carrier::nccl, scope, std::make_unique<NcclGroup>(name, members, devices)});
    };
    attempt(DevicePathChoice::nccl, reasons, [&] {
      open(Scope::all, "NCCL over all ranks", everyone_);
      if (!inside_) return;
      open(Scope::inside, "NCCL inside a host", *inside_);
      open(Scope::between, "NCCL between hosts", *between_);
    });
  }
  const bool has_nccl = has(Carrier::nccl);
  if (is_one_host && (exchange_ != nullptr || has_nccl)) {
    if (reasons.empty()) return;
    if (exchange_ == nullptr) {
      note_shortcoming(context, "collectives on devices go by NCCL only: " + reasons);
    }
    if (!has_nccl) context.log().info("collectives on devices go by the exchange only: " + reasons);
    return;
  }
  if (!has_nccl) open_between(devices, options, std::move(reasons));
}

/// Opens the groups between the hosts where NCCL is not available: UCX, or else host memory.
void DeviceGroups::open_between(const DeviceTable& devices, const DeviceOptions& options,
                                std::string reasons) {
  const auto note_reasons = [&](const std::string& found, std::string_view way) {
    if (!found.empty())
      note_shortcoming(context_, fmt::format("collectives on devices go {}: {}", way, found));
  };
  const auto open_ucx = [&] {
    if (wanted_ == DevicePathChoice::automatic && context_.options().network == NetworkUse::mpi) {
      throw Error(ErrorCode::unsupported, "UCX is not wanted (DDL_NETWORK=mpi)").as_agreed();
    }
    add_between(Carrier::network, [&](GroupMembers& members) {
      return open_ucx_group(members, devices, options.staging_bytes);
    });
  };
  if (wanted_ != DevicePathChoice::host && attempt(DevicePathChoice::ucx, reasons, open_ucx)) {
    return note_reasons(reasons, "by UCX");
  }
  const std::string better = reasons;
  const auto open_host = [&] {
    add_between(Carrier::host_memory,
                [&](GroupMembers& members) { return std::make_unique<HostGroup>(members, devices); });
  };
  if (!attempt(DevicePathChoice::host, reasons, open_host)) {
    throw Error(ErrorCode::unsupported, "the ranks' devices cannot exchange data: " + reasons).as_agreed();
  }
  note_reasons(better, "through the host's memory");
}

/// Calls `open` and returns whether it succeeded. Adds the reason to `reasons` if it did not, and rethrows
/// the error if the user asked for `path`.
template <typename Open>
bool DeviceGroups::attempt(DevicePathChoice path, std::string& reasons, const Open& open) {
  const std::size_t before = opened_.size();
  try {
    open();
    return true;
  } catch (const Error& error) {
    if (path == wanted_ || error.code() != ErrorCode::unsupported) throw;
    // Groups of the other dimensions are useless without the one that failed.
    for (; opened_.size() > before; opened_.pop_back()) opened_.back().group->close(true);
    reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    return false;
  }
}

/// Opens a group over all ranks and, if the exchange works inside the hosts, one between the hosts.
template <typename Make>
void DeviceGroups::add_between(Carrier carrier, const Make& make) {
  opened_.push_back({carrier, Scope::all, make(everyone_)});
  if (index_of(Carrier::cuda_ipc, Scope::inside) == opened_.size()) return;
  opened_.push_back({carrier, Scope::between, make(*between_)});
}

std::size_t DeviceGroups::index_of(Carrier carrier, Scope scope) const {
  const auto found = std::ranges::find_if(
      opened_, [&](const Entry& entry) { return entry.carrier == carrier && entry.scope == scope; });
  return static_cast<std::size_t>(found - opened_.begin());
}

std::size_t DeviceGroups::meeting() const {
  return static_cast<std::size_t>(std::ranges::find(opened_, Scope::all, &Entry::scope) - opened_.begin());
}

bool DeviceGroups::has_dimensions() const {
  return std::ranges::count(opened_, Scope::between, &Entry::scope) > 0;
}

bool DeviceGroups::has(Carrier carrier) const {
  return std::ranges::count(opened_, carrier, &Entry::carrier) > 0;
}

topology::DeviceCarriers DeviceGroups::carriers() const {
  return {.exchange = exchange_ != nullptr,
          .one_shot_bytes = exchange_ != nullptr ? exchange_->most_whole_bytes() : 0,
          .nccl = has(Carrier::nccl),
          .network = has(Carrier::network),
          .host_memory = has(Carrier::host_memory)};
}

std::byte* DeviceGroups::allocate(std::size_t bytes) {
  if (exchange_ != nullptr) return exchange_->allocate(bytes);
  context_.on_all_ranks("device memory", [&] {
    own_memory_.push_back(allocate_on_device(bytes, fmt::format("rank {}", context_.rank())));
  });
  return own_memory_.back().get();
}

}  // namespace ddl::device
