#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/device/device_path.hpp"
#include "ddl/device/device_table.hpp"
#include "ddl/device/exchange_path.hpp"
#include "ddl/device/reproducible_path.hpp"

namespace ddl::device {

/// The ways of a communicator's calls: which there are, which of them a call takes, and the memory that they
/// reach.
class DevicePaths {
 public:
  /// Opens what the options ask for; if that is automatic, the best that there is, and says why it is not a
  /// better one. In reproducible contexts what keeps the bits is in front of each. Collective; errors as
  /// DeviceCommunicator's.
  /// `topology`: of the devices.
  DevicePaths(Context& context, const DeviceTable& devices,
              std::shared_ptr<const topology::Topology> topology, const DeviceOptions& wanted);
  DevicePaths(const DevicePaths&) = delete;
  DevicePaths& operator=(const DevicePaths&) = delete;
  /// After `close` of all.
  ~DevicePaths();

  [[nodiscard]] DevicePath& of(const DeviceCall& call) const;
  [[nodiscard]] std::vector<DevicePath*> all() const;

  /// Zeros that the paths reach. Collective; throws, agreed, `unsupported`.
  std::byte* allocate(std::size_t bytes);
  [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const {
    return !exchange_ || exchange_->reaches(data, bytes);
  }
  /// Of the exchange's largest kernels; 0 if there is none.
  [[nodiscard]] int blocks() const noexcept { return exchange_ ? exchange_->blocks() : 0; }

 private:
  void open(const DeviceTable& devices, const DeviceOptions& options);
  void keep_bits(std::size_t bytes);
  [[nodiscard]] DevicePath* front_of(DevicePath* path) const;

  Context& context_;
  std::shared_ptr<const topology::Topology> topology_;
  std::unique_ptr<ExchangePath> exchange_;  // null: the other one alone
  std::unique_ptr<DevicePath> large_;       // null: the exchange alone
  std::size_t large_from_ = 0;
  std::vector<std::unique_ptr<ReproduciblePath>> in_front_;  // of these, in reproducible contexts
  ReproduciblePath::Memory exact_memory_ = {};               // that those share
  std::vector<std::byte*> own_memory_;
};

}  // namespace ddl::device
