#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/device/runtime/device_path.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/exchange/exchange_path.hpp"
#include "ddl/device/plan_executor.hpp"
#include "ddl/device/reproducible_path.hpp"

namespace ddl::device {

/// What there is to carry a communicator's calls, the plans that are made of it, and what executes them.
class DevicePaths {
 public:
  /// Opens what the options ask for; if that is automatic, all that is of use, and says why it is not
  /// something better. In reproducible contexts what keeps the bits is in front. Collective; errors as
  /// DeviceCommunicator's.
  DevicePaths(Context& context, const DeviceTable& devices, const DeviceOptions& wanted);
  DevicePaths(const DevicePaths&) = delete;
  DevicePaths& operator=(const DevicePaths&) = delete;
  /// After `close`.
  ~DevicePaths();

  /// What does all calls.
  [[nodiscard]] DevicePath& path() const {
    return front_ ? static_cast<DevicePath&>(*front_) : static_cast<DevicePath&>(*executor_);
  }
  [[nodiscard]] PlanExecutor& executor() { return *executor_; }
  /// What plans are chosen for: the topology, with the carriers that have been opened.
  [[nodiscard]] const topology::Topology& topology() const { return *topology_; }
  void trace(DeviceTimeline& timeline) { executor_->trace(timeline); }

  /// Zeros that the paths reach. Collective; throws, agreed, `unsupported`.
  std::byte* allocate(std::size_t bytes);
  [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const {
    return !exchange_ || exchange_->reaches(data, bytes);
  }
  /// Of the exchange's largest kernels; 0 if there is none.
  [[nodiscard]] int blocks() const noexcept { return exchange_ ? exchange_->blocks() : 0; }

 private:
  void open(const DeviceTable& devices, const DeviceOptions& options);
  void open_between(const DeviceTable& devices, const DeviceOptions& options, std::string reasons);
  template <typename Open>
  bool attempt(bool is_asked_for, std::string& reasons, const Open& open);
  DevicePath* add(std::unique_ptr<DevicePath> group);
  void keep_bits(std::size_t bytes);

  Context& context_;
  GroupMembers all_;
  std::optional<GroupMembers> inside_, between_;  // where hosts have as many ranks each
  std::unique_ptr<ExchangePath> exchange_;
  std::vector<std::unique_ptr<DevicePath>> opened_;
  DimensionGroups groups_;
  topology::DeviceCarriers carriers_;
  std::shared_ptr<const topology::Topology> topology_;
  std::shared_ptr<collectives::PlanBook> plans_;
  std::unique_ptr<PlanExecutor> executor_;
  std::unique_ptr<ReproduciblePath> front_;  // in reproducible contexts
  std::vector<std::byte*> own_memory_;
};

}  // namespace ddl::device
