#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/device/exchange/exchange_group.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
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
  DeviceGroups(const Context& context, const DeviceTable& devices, const DeviceOptions& options);
  DeviceGroups(const DeviceGroups&) = delete;
  DeviceGroups& operator=(const DeviceGroups&) = delete;

  [[nodiscard]] const std::vector<Entry>& all() const noexcept { return opened_; }
  /// The index of a group in `all()`; `all().size()` if it is not open.
  [[nodiscard]] std::size_t index_of(topology::Carrier carrier, Scope scope) const;
  /// The members of `all()[group]`.
  [[nodiscard]] const GroupMembers& members_of(std::size_t group) const {
    const Scope scope = opened_[group].scope;
    return scope == Scope::all ? everyone_ : scope == Scope::inside ? *inside_ : *between_;
  }
  /// The index of the first group over all ranks, which executes barriers.
  [[nodiscard]] std::size_t meeting() const;
  /// Whether calls can be split by dimension.
  [[nodiscard]] bool has_dimensions() const;
  [[nodiscard]] topology::DeviceCarriers carriers() const;

  /// Allocates zeroed device memory, which the exchange uses without a copy. Collective; throws an agreed
  /// `unsupported`.
  std::byte* allocate(std::size_t bytes);
  [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const {
    return exchange_ == nullptr || exchange_->reaches(data, bytes);
  }
  /// The number of blocks of the exchange's largest kernels; 0 without an exchange.
  [[nodiscard]] int blocks() const noexcept { return exchange_ != nullptr ? exchange_->blocks() : 0; }

 private:
  template <typename Open>
  bool attempt(DevicePathChoice path, std::string& reasons, const Open& open);
  void open_between(const DeviceTable& devices, const DeviceOptions& options, std::string reasons);
  template <typename Make>
  void add_between(topology::Carrier carrier, const Make& make);
  [[nodiscard]] bool has(topology::Carrier carrier) const;

  Context context_;
  const DevicePathChoice wanted_;
  GroupMembers everyone_;
  std::optional<GroupMembers> inside_, between_;  // only if hosts have the same number of ranks, two or more
  std::vector<Entry> opened_;
  ExchangeGroup* exchange_ = nullptr;
  std::vector<DeviceBytes> own_memory_;
};

}  // namespace ddl::device
