#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/system/bootstrap.hpp"
#include "collectives/transports/network/network.hpp"

namespace ddl::collectives {

struct UcxSettings {
  int rank = 0;
  int ranks = 1;
  int ranks_per_host = 1;
  /// Devices to use, such as "eth0" or "mlx5_0:1"; empty for UCX's default. UCX_NET_DEVICES overrides them.
  std::vector<std::string> devices = {};
};

/// Tagged messages over UCX, with any of its transports except shared memory: inside a host the library has a
/// better one, and emulated hosts on one kernel must not find it. Settings go through UCX's configuration;
/// UCX_... variables that the user has set take precedence.
///
/// A connection is made at the first transfer to or from a rank, and takes as long as the peer's host needs
/// to answer (the system gives up after about two minutes). A rank that is destroyed normally sends a goodbye
/// message to its connected peers. A connection that breaks without one sets `failed_peer`, and all transfers
/// with that peer fail.
class UcxNetwork final : public Network {
 public:
  /// Local to this rank. Throws `transport` if UCX does not work here, and `unsupported` for more ranks than
  /// tags can hold.
  explicit UcxNetwork(const UcxSettings& settings);
  /// Waits for pending sends, for at most 10 s.
  ~UcxNetwork() override;

  /// About 100 bytes, which `connect` needs on all ranks.
  [[nodiscard]] const std::string& address() const noexcept;
  /// Whether transfers may use CUDA device memory: UCX was built with CUDA, finds a device, and no setting
  /// disables it. Threads that use it need a CUDA context.
  [[nodiscard]] bool carries_device_memory() const noexcept;
  /// Takes all ranks' addresses. Must be called before the first transfer.
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

/// Opens UCX over the interfaces and adapters that all hosts share, connects the ranks, and lets each rank
/// send the next one a byte. Collective. If any rank fails, returns null on all ranks, with the same reason.
std::unique_ptr<UcxNetwork> open_ucx(Bootstrap& bootstrap, std::string& reason);

/// Each rank sends `greeting` to the next rank and receives the previous rank's in `answer`, within 15 s.
/// Collective. On failure, abandons the network and throws `transport`.
void greet_next(UcxNetwork& network, const Bootstrap& bootstrap, std::span<const std::byte> greeting,
                std::span<std::byte> answer);

}  // namespace ddl::collectives
