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

/// Kernels of ranks of a host that meet and exchange data through memory that all have mapped; several
/// ranks may share a device. See DeviceCommunicator.
class ExchangeGroup final : public DimensionGroup {
 public:
  /// On the device that is selected. Collective; errors, agreed, as DeviceCommunicator's.
  ExchangeGroup(GroupMembers& members, const DeviceTable& devices, std::size_t staging_bytes);

  void run(const DeviceCall& call) override;
  [[nodiscard]] bool can_be_captured() const noexcept override { return true; }
  [[nodiscard]] std::uint64_t completed() override;
  [[nodiscard]] std::optional<GroupFailure> failure() override;
  void abort() noexcept override;
  void close(bool in_order) noexcept override;

  /// Zeros that the other ranks have mapped. Collective.
  std::byte* allocate(std::size_t bytes);
  [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const {
    return registered(data, bytes).has_value();
  }
  [[nodiscard]] int blocks() const noexcept { return blocks_; }
  /// How many blocks of its kernels the selected device holds at a time. Throws `unsupported`, `internal`.
  [[nodiscard]] static std::int64_t room_on_device();
  /// Of an all_reduce by one_shot.
  [[nodiscard]] std::size_t most_whole_bytes() const noexcept;

 private:
  using Exchange = collectives::device::Exchange;
  using Address = collectives::device::Address;
  using Place = collectives::device::Place;
  /// Of a call, as one kernel does it.
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
  std::optional<PeerMemory> meeting_;  // mailboxes, and then pointers to windows
  std::vector<PeerMemory> windows_;    // the first is for staging, unless all ranks are in one process
  BlockBudget budget_{BlockBudget::Half::exchange};
  std::uint64_t calls_ = 0;  // but for those that are captured
};

}  // namespace ddl::device
