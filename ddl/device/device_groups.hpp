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

/// Of which ranks a group is: of all; of those of a host; of those of the same index on their hosts.
enum class Scope { all, inside, between };

/// What there is to carry a communicator's calls.
class DeviceGroups {
 public:
  static constexpr std::size_t most = 6;
  struct Entry {
    topology::Carrier carrier;
    Scope scope;
    std::unique_ptr<DimensionGroup> group;
  };

  /// Opens what the options ask for; if that is automatic, all that is of use, and says why it is not
  /// something better. Collective; errors as DeviceCommunicator's.
  DeviceGroups(const Context& context, const DeviceTable& devices, const DeviceOptions& options);
  DeviceGroups(const DeviceGroups&) = delete;
  DeviceGroups& operator=(const DeviceGroups&) = delete;

  [[nodiscard]] const std::vector<Entry>& all() const noexcept { return opened_; }
  /// The index of a group; that beyond the last one if there is none.
  [[nodiscard]] std::size_t index_of(topology::Carrier carrier, Scope scope) const;
  /// Of which ranks a group is.
  [[nodiscard]] const GroupMembers& members_of(std::size_t group) const {
    const Scope scope = opened_[group].scope;
    return scope == Scope::all ? everyone_ : scope == Scope::inside ? *inside_ : *between_;
  }
  /// Of the first group of all ranks: for barriers.
  [[nodiscard]] std::size_t meeting() const;
  /// Whether calls can go by dimension.
  [[nodiscard]] bool has_dimensions() const;
  [[nodiscard]] topology::DeviceCarriers carriers() const;

  /// Zeros that the groups reach. Collective; throws, agreed, `unsupported`.
  std::byte* allocate(std::size_t bytes);
  [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const {
    return exchange_ == nullptr || exchange_->reaches(data, bytes);
  }
  /// Of the exchange's largest kernels; 0 if there is none.
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
  std::optional<GroupMembers> inside_, between_;  // where hosts have as many ranks each
  std::vector<Entry> opened_;
  ExchangeGroup* exchange_ = nullptr;
  std::vector<DeviceBytes> own_memory_;
};

}  // namespace ddl::device
