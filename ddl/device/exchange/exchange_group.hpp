#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/device/exchange.hpp"
#include "ddl/context.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
#include "ddl/device/runtime/peer_memory.hpp"

namespace ddl::device {

/// Collectives of the ranks of a host by kernels that synchronize and exchange data through memory that all
/// ranks have mapped. Several ranks may share a device. See DeviceCommunicator.
class ExchangeGroup final : public DimensionGroup {
 public:
  /// Uses the selected device. Collective; throws agreed errors, as DeviceCommunicator's constructor.
  ExchangeGroup(GroupMembers& members, const DeviceTable& devices, std::size_t staging_bytes);

  void run(const DeviceCall& call) override;
  [[nodiscard]] bool can_be_captured() const noexcept override { return true; }
  [[nodiscard]] std::uint64_t completed() override;
  [[nodiscard]] std::optional<GroupFailure> failure() override;
  void abort() noexcept override;
  void close(bool in_order) noexcept override;

  /// Allocates zeroed memory that the other ranks map. Collective.
  std::byte* allocate(std::size_t bytes);
  [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const {
    return registered(data, bytes).has_value();
  }
  [[nodiscard]] int blocks() const noexcept { return blocks_; }
  /// The number of blocks of the exchange kernels that the selected device can hold at a time. Throws
  /// `unsupported` and `internal`.
  [[nodiscard]] static std::int64_t room_on_device();
  /// The largest all_reduce that the one_shot algorithm takes, in bytes.
  [[nodiscard]] std::size_t most_whole_bytes() const noexcept;

 private:
  using Exchange = collectives::device::Exchange;
  using Address = collectives::device::Address;
  using Place = collectives::device::Place;
  /// The part of a call that one kernel executes.
  struct Part {
    std::size_t elements;
    bool is_last;
  };

  void choose_blocks(const DeviceTable& devices);
  void add_window(std::size_t bytes);
  [[nodiscard]] std::byte** window_table() const;
  [[nodiscard]] std::optional<Address> registered(const void* data, std::size_t bytes) const;
  void run_staged(const DeviceCall& call);
  void exchange(const DeviceCall& call, Part part, const Place& input, const Place& output);

  GroupMembers& members_;
  const int rank_;
  const int ranks_;
  int blocks_ = 0;
  std::size_t staging_bytes_;
  Pinned<collectives::device::Status> status_;
  std::optional<PeerMemory> meeting_;  // the mailbox, then the table of window pointers
  std::vector<PeerMemory> windows_;    // the first is for staging, unless all ranks are in one process
  BlockBudget budget_{BlockBudget::Half::exchange};
  std::uint64_t calls_ = 0;  // without captured calls
};

}  // namespace ddl::device
