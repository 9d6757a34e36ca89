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
class UcxNetwork : public Network {
 public:
  /// About 100 bytes, which `connect` needs on all ranks.
  [[nodiscard]] virtual const std::string& address() const noexcept = 0;
  /// Whether transfers may use CUDA device memory: UCX was built with CUDA, finds a device, and no setting
  /// disables it. Threads that use it need a CUDA context.
  [[nodiscard]] virtual bool carries_device_memory() const noexcept = 0;
  /// Takes all ranks' addresses. Must be called before the first transfer.
  virtual void connect(std::vector<std::string> addresses) = 0;
};

/// Local to this rank. Throws `transport` if UCX does not work here, and `unsupported` for more ranks than
/// tags can hold. The network's destructor waits for pending sends, for at most 10 s.
std::unique_ptr<UcxNetwork> make_ucx_network(const UcxSettings& settings);

/// Opens UCX over the interfaces and adapters that all hosts share, connects the ranks, and lets each rank
/// send the next one a byte. Collective. If any rank fails, returns null on all ranks, with the same reason.
std::unique_ptr<UcxNetwork> open_ucx(Bootstrap& bootstrap, std::string& reason);

/// Each rank sends `greeting` to the next rank and receives the previous rank's in `answer`, within 15 s.
/// Collective. On failure, abandons the network and throws `transport`.
void greet_next(UcxNetwork& network, const Bootstrap& bootstrap, std::span<const std::byte> greeting,
                std::span<std::byte> answer);

}  // namespace ddl::collectives
