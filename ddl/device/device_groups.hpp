#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/system/fail_agreed.hpp"
#include "ddl/context.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/device/exchange/exchange_group.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
#include "ddl/log.hpp"
#include "ddl/topology/device_carriers.hpp"

namespace ddl::device {

/// The members of a group: all ranks, the ranks of a host, or the ranks with the same index on their hosts.
enum class Scope { all, inside, between };

/// The groups that carry a communicator's calls.
class DeviceGroups {
 public:
  static constexpr std::size_t most = 6;
  struct Entry {
    topology::Carrier carrier;
    Scope scope;
    std::unique_ptr<DimensionGroup> group;
  };

  /// Opens the groups that the options ask for. With the automatic path, opens all useful groups and logs why
  /// a better one is missing. Collective; throws as DeviceCommunicator's constructor.
  DeviceGroups(const Context& context, const DeviceTable& devices, const DeviceOptions& options)
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
        auto made = std::make_unique<ExchangeGroup>(is_one_host ? everyone_ : *inside_, devices,
                                                    options.staging_bytes);
        exchange_ = made.get();
        opened_.push_back({Carrier::cuda_ipc, is_one_host ? Scope::all : Scope::inside, std::move(made)});
      });
    }
    if (exchange_ != nullptr && context.size() == 1) return;
    if (may_be(DevicePathChoice::nccl)) {
      const auto open = [&](Scope scope, const char* name, GroupMembers& members) {
        opened_.push_back({Carrier::nccl, scope, open_nccl_group(name, members, devices)});
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

  DeviceGroups& operator=(DeviceGroups&&) = delete;

  [[nodiscard]] const std::vector<Entry>& all() const noexcept { return opened_; }
  /// The index of a group in `all()`; `all().size()` if it is not open.
  [[nodiscard]] std::size_t index_of(topology::Carrier carrier, Scope scope) const {
    const auto found = std::ranges::find_if(
        opened_, [&](const Entry& entry) { return entry.carrier == carrier && entry.scope == scope; });
    return as_index(found - opened_.begin());
  }

  /// The members of `all()[group]`.
  [[nodiscard]] const GroupMembers& members_of(std::size_t group) const {
    const Scope scope = opened_[group].scope;
    return scope == Scope::all ? everyone_ : scope == Scope::inside ? *inside_ : *between_;
  }
  /// The index of the first group over all ranks, which executes barriers.
  [[nodiscard]] std::size_t meeting() const {
    return as_index(std::ranges::find(opened_, Scope::all, &Entry::scope) - opened_.begin());
  }

  /// Whether calls can be split by dimension.
  [[nodiscard]] bool has_dimensions() const {
    return std::ranges::count(opened_, Scope::between, &Entry::scope) > 0;
  }

  [[nodiscard]] topology::DeviceCarriers carriers() const {
    return {.exchange = exchange_ != nullptr,
            .one_shot_bytes = exchange_ != nullptr ? exchange_->most_whole_bytes() : 0,
            .nccl = has(Carrier::nccl),
            .network = has(Carrier::network),
            .host_memory = has(Carrier::host_memory)};
  }

  /// Allocates zeroed device memory, which the exchange uses without a copy. Collective; throws an agreed
  /// `unsupported`.
  std::byte* allocate(std::size_t bytes) {
    if (exchange_ != nullptr) return exchange_->allocate(bytes);
    context_.on_all_ranks("device memory", [&] {
      own_memory_.push_back(allocate_on_device(bytes, fmt::format("rank {}", context_.rank())));
    });
    return own_memory_.back().get();
  }

  [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const {
    return exchange_ == nullptr || exchange_->reaches(data, bytes);
  }
  /// The number of blocks of the exchange's largest kernels; 0 without an exchange.
  [[nodiscard]] int blocks() const noexcept { return exchange_ != nullptr ? exchange_->blocks() : 0; }

 private:
  using Carrier = topology::Carrier;

  /// Whether there are several hosts with the same number of ranks, two or more, as calls by dimension need.
  static bool is_even(const topology::RankMap& map) {
    for (int host = 1; host < map.hosts(); ++host) {
      if (map.ranks_of(host).size() != map.ranks_of(0).size()) return false;
    }
    return map.hosts() > 1 && map.ranks_of(0).size() > 1;
  }

  /// Calls `open` and returns whether it succeeded. Adds the reason to `reasons` if it did not, and rethrows
  /// the error if the user asked for `path`.
  template <typename Open>
  bool attempt(DevicePathChoice path, std::string& reasons, const Open& open) {
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

  /// Opens the groups between the hosts where NCCL is not available: UCX, or else host memory.
  void open_between(const DeviceTable& devices, [[maybe_unused]] const DeviceOptions& options,
                    std::string reasons) {
    const auto note_reasons = [&](const std::string& found, std::string_view way) {
      if (!found.empty())
        note_shortcoming(context_, fmt::format("collectives on devices go {}: {}", way, found));
    };
    const auto open_ucx = [&] {
#ifdef DDL_HAVE_UCX
      if (wanted_ == DevicePathChoice::automatic && context_.options().network == NetworkUse::mpi) {
        fail_agreed(ErrorCode::unsupported, "UCX is not wanted (DDL_NETWORK=mpi)");
      }
      add_between(Carrier::network, [&](GroupMembers& members) {
        return open_ucx_group(members, devices, options.staging_bytes);
      });
#else
      fail_agreed(ErrorCode::unsupported,
                  "UCX cannot be used: this build is without it (CMake option DDL_WITH_UCX)");
#endif
    };
    if (wanted_ != DevicePathChoice::host && attempt(DevicePathChoice::ucx, reasons, open_ucx)) {
      return note_reasons(reasons, "by UCX");
    }
    const std::string better = reasons;
    const auto open_host = [&] {
      add_between(Carrier::host_memory,
                  [&](GroupMembers& members) { return open_host_group(members, devices); });
    };
    if (!attempt(DevicePathChoice::host, reasons, open_host)) {
      throw Error(ErrorCode::unsupported, "the ranks' devices cannot exchange data: " + reasons).as_agreed();
    }
    note_reasons(better, "through the host's memory");
  }

  /// Opens a group over all ranks and, if the exchange works inside the hosts, one between the hosts.
  template <typename Make>
  void add_between(topology::Carrier carrier, const Make& make) {
    opened_.push_back({carrier, Scope::all, make(everyone_)});
    if (index_of(Carrier::cuda_ipc, Scope::inside) == opened_.size()) return;
    opened_.push_back({carrier, Scope::between, make(*between_)});
  }

  [[nodiscard]] bool has(topology::Carrier carrier) const {
    return std::ranges::count(opened_, carrier, &Entry::carrier) > 0;
  }

  Context context_;
  const DevicePathChoice wanted_;
  GroupMembers everyone_;
  std::optional<GroupMembers> inside_, between_;  // only if hosts have the same number of ranks, two or more
  std::vector<Entry> opened_;
  ExchangeGroup* exchange_ = nullptr;
  std::vector<DeviceBytes> own_memory_;
};

}  // namespace ddl::device
