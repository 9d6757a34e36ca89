#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/transports/network/network.hpp"

namespace ddl::collectives {

struct UcxSettings {
  int rank = 0;
  int ranks = 1;
  int ranks_per_host = 1;
  /// "eth0", "mlx5_0:1"; empty: as UCX likes. What the user has set in UCX_NET_DEVICES overrides it.
  std::vector<std::string> devices = {};
};

/// UCX's tagged messages, over any of its transports but shared memory: between threads and processes of one
/// host the library has better, and hosts that are emulated on one kernel must not find it. Its settings are
/// UCX's environment variables, UCX_...; what the user has set stays.
///
/// Connections are made with the first transfer to or from a rank, which takes as long as the peer's host
/// needs to answer (the system gives up after some two minutes). A rank that is destroyed in order says
/// goodbye to those that it is connected with; a connection that breaks without makes `failed_peer`, and ends
/// all transfers of that peer as failed.
class UcxNetwork final : public Network {
 public:
  /// On this rank alone. Throws `transport` if UCX cannot be used here, `unsupported` for more ranks than
  /// tags can name.
  explicit UcxNetwork(const UcxSettings& settings);
  /// Waits for what was sent, 10 s at most, and goes.
  ~UcxNetwork() override;

  /// For the other ranks, some 100 bytes.
  [[nodiscard]] const std::string& address() const noexcept;
  /// Whether transfers may be of memory of CUDA's devices: UCX was built with CUDA, finds a device, and none
  /// of its settings keeps it from them. Their threads need a CUDA context.
  [[nodiscard]] bool carries_device_memory() const noexcept;
  /// All ranks' addresses, before the first transfer.
  void connect(std::vector<std::string> addresses);

  [[nodiscard]] std::string name() const override;
  [[nodiscard]] int communicators() const override;
  void send(int peer, MessageTag tag, std::span<const std::byte> bytes, Transfer& transfer) override;
  void receive(int peer, MessageTag tag, std::span<std::byte> bytes, Transfer& transfer) override;
  [[nodiscard]] bool has_other(int peer, MessageTag tag) const override;
  bool progress() override;
  [[nodiscard]] bool may_hold_back() const override;
  void flush() override;
  [[nodiscard]] int event_descriptor() const override;
  bool arm() override;
  [[nodiscard]] int failed_peer() const override;
  [[nodiscard]] std::string failure() const override;
  void abandon() noexcept override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddl::collectives
